package slurm

import "context"

// CancelNow ends a job, or one element of an array, with one command and no question before it. scancel says nothing, and exits with 0, where
// it does not know the job, or that has ended already: ask [Client.Jobs] first.
func (c *Client) CancelNow(ctx context.Context, id string) error {
	job, err := ParseJobID(id)
	if err != nil {
		return err
	}
	out, err := c.run(ctx, "scancel", onCluster(job.Cluster, []string{job.ID})...)
	if err != nil {
		return err
	}
	return failure("scancel", out)
}
