package attempt

import (
	"context"
	"errors"
	"fmt"

	"ddpbatch/internal/rundir"
	"ddpbatch/slurm"
)

// FindDrain returns a function that asks Slurm which nodes of the job around this process it drains, and why. It returns nil outside a job,
// and without a run directory, as nobody would start the job again. An error of the function that matches errors.ErrUnsupported means that
// this node does not have sinfo.
func (e Env) FindDrain(run *rundir.Dir) func(context.Context) (map[string]string, error) {
	list := e.nodelist()
	if run == nil || e.jobID() == "" || list == "" {
		return nil
	}
	return func(ctx context.Context) (map[string]string, error) {
		reasons, err := e.Slurm.Draining(ctx, list)
		if errors.Is(err, slurm.ErrNoSlurm) {
			err = fmt.Errorf("%w: %w", errors.ErrUnsupported, err)
		}
		return reasons, err
	}
}

// Spares returns a function that asks Slurm whether the job around this process could start without the given nodes and those that it
// already excludes, as it would otherwise wait forever, and whether Slurm would requeue it at all. why says why it could not; it is "" if
// it could. Spares returns nil if FindDrain does.
func (e Env) Spares(run *rundir.Dir) func(ctx context.Context, nodes []string) (why string, err error) {
	if e.FindDrain(run) == nil {
		return nil
	}
	return func(ctx context.Context, nodes []string) (string, error) {
		facts, err := e.ownFacts(ctx)
		if err != nil {
			return "", err
		}
		if facts.NoRequeue {
			return "Slurm would not requeue it: it was submitted with --no-requeue, or the site has JobRequeue=0", nil
		}
		if nodes, err = withExcluded(run, nodes, facts.Exclude); err != nil {
			return "", err
		}
		scheduler := slurmScheduler{&Attempt{Env: e, Run: run, JobID: e.jobID()}}
		switch err := scheduler.Spares(ctx, nodes); {
		case err == nil:
			return "", nil
		case unanswered(err), errors.Is(err, slurm.ErrNoSlurm): // this node does not have sbatch
			return "", err
		default:
			return fmt.Sprintf("it cannot start without these nodes: %v", err), nil
		}
	}
}
