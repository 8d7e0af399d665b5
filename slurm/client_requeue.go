package slurm

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Requeue puts a job, or one element of an array ("12_3"), back into the queue: it starts again under the same id, and with
// SLURM_RESTART_COUNT one higher. A running job's processes get SIGTERM at once, the one that asks too.
//
// A job that was cancelled, and whose processes are not all gone, is revived by this: ask [Client.Facts] first.
func (c *Client) Requeue(ctx context.Context, id string) error {
	return c.control(ctx, id, "requeue", func(id string) []string { return []string{"requeue", id} })
}

// ExcludeNodes keeps a pending job from starting on the nodes of a folded list, which replaces the one that it has. Slurm takes
// it for pending jobs only: of a running one, right after it was requeued.
func (c *Client) ExcludeNodes(ctx context.Context, id, hostlist string) error {
	if err := checkWord(hostlist); err != nil || hostlist == "" {
		return fmt.Errorf("exclude nodes from job %s: %s is no list of nodes", clip(id), clip(hostlist))
	}
	return c.control(ctx, id, "exclude nodes from", func(id string) []string {
		return []string{"update", "JobId=" + id, "ExcNodeList=" + hostlist}
	})
}

// control has scontrol do something to one job.
func (c *Client) control(ctx context.Context, id, what string, args func(id string) []string) error {
	job, err := ParseJobID(id)
	if err != nil {
		return err
	}
	out, err := c.run(ctx, "scontrol", onCluster(job.Cluster, args(job.ID))...)
	if err == nil {
		err = failure("scontrol", out)
	}
	if err != nil {
		return fmt.Errorf("%s job %s: %w", what, job.ID, err)
	}
	return nil
}

// NotRequeueable tells whether a requeue was refused because the job was submitted so that it cannot be (sbatch
// --no-requeue, or JobRequeue=0 in slurm.conf).
func NotRequeueable(err error) bool {
	var refused *RefusedError
	return errors.As(err, &refused) && strings.Contains(refused.Words, "presently disabled")
}
