package slurm

import (
	"context"
	"slices"
)

// Cancel ends a job, or one element of an array. A job that has ended already is left as it is, which
// is no error. Since scancel says nothing, and exits with 0, when it does not know the job, Slurm is
// asked first: the error for an unknown job matches [ErrUnknownJob].
func (c *Client) Cancel(ctx context.Context, id string) error {
	job, err := ParseJobID(id)
	if err != nil {
		return err
	}
	parts, err := c.Jobs(ctx, []string{id})
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(parts, func(s JobStatus) bool { return !s.Ended() }) {
		return nil
	}
	out, err := c.run(ctx, "scancel", onCluster(job.Cluster, []string{job.ID})...)
	if err != nil {
		return err
	}
	return failure("scancel", out)
}
