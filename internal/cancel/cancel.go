package cancel

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"ddpbatch/internal/rundir"
	"ddpbatch/internal/runview"
	"ddpbatch/internal/submission"
	"ddpbatch/internal/usage"
)

// Canceller cancels the jobs that a person names.
type Canceller struct {
	Env  submission.Env
	View *runview.Viewer
	Runs string // the folder in which job ids are looked up
}

// Cancel cancels the jobs that name means and that are not over. It returns their run and the ids of those that it has canceled; there may
// be some even if it returns an error. It is an error if all jobs were over before, but not if only some were.
func (c *Canceller) Cancel(ctx context.Context, name string) (*rundir.Dir, []string, error) {
	run, ids, err := c.View.FindJobs(c.Runs, name)
	if err == nil {
		err = run.CheckCancel()
	}
	if err != nil {
		return nil, nil, err
	}
	switch run.Spec().Kind {
	case "slurm":
		if run, ids, err = c.submitted(ctx, name, run, ids); err != nil {
			return nil, nil, err
		}
		done, err := c.jobs(ctx, run, ids)
		return run, done, err
	case "simulate":
		if err := c.simulation(ctx, run, ids[0]); err != nil {
			return nil, nil, err
		}
		return run, ids[:1], nil
	}
	return nil, nil, usage.Errorf("%s was started by hand, not submitted; press Ctrl-C where it runs", c.View.From.Short(run.Path()))
}

// submitted returns the run that name means, and its jobs. First it records a job of the newest submission that the command that submitted
// it did not record, because it was killed.
func (c *Canceller) submitted(ctx context.Context, name string, run *rundir.Dir, ids []string) (*rundir.Dir, []string, error) {
	path := c.View.From.Short(run.Path())
	s, err := submission.Newest(ctx, run, false, submission.AskUserJobs(c.Env.Slurm))
	if err != nil {
		return nil, nil, err
	}
	if s.Chain && s.By != nil { // the rest of the chain would be submitted after the cancel
		return nil, nil, beingSubmitted(path, s.By)
	}
	var recorded bool
	if run.IsOwn() { // for another user's run root does not write
		recorded, err = c.Env.RecordLost(s)
	}
	switch {
	case err != nil:
		return nil, nil, err
	case !run.IsOwn() && s.Open != nil && s.Job != "":
		if s.Open.Detail != rundir.EventLink {
			ids = nil
		}
		return run, append(ids, s.JobID().String()), nil
	case recorded: // there is one more job now
		return c.View.FindJobs(c.Runs, name)
	case s.Open != nil && s.Asked != nil:
		return nil, nil, fmt.Errorf("look for the job of %s, which its submission did not record: %w", path, s.Asked)
	case s.Open != nil && s.By != nil:
		return nil, nil, beingSubmitted(path, s.By)
	case ids[0] == "":
		return nil, nil, usage.Errorf("%s has no job: its submission was interrupted, and Slurm does not know a job of its script", path)
	}
	return run, ids, nil
}

func beingSubmitted(path string, by *rundir.Claimant) error {
	return &usage.Error{Message: fmt.Sprintf("%s is being submitted just now: %s", path, by), Hint: "cancel it when that has ended"}
}

// jobs cancels those of a run's jobs that are not over.
func (c *Canceller) jobs(ctx context.Context, run *rundir.Dir, ids []string) (done []string, err error) {
	if c.View.IsChain(run) {
		return c.chain(ctx, run, ids)
	}
	var over, failed []error
	for _, id := range ids {
		how, hasEnded, err := c.View.Ended(ctx, run, id)
		switch {
		case hasEnded:
			over = append(over, alreadyEnded(id, how))
			continue
		case !errors.As(err, new(*usage.Error)):
			err = c.job(ctx, run, id, err)
		}
		if err == nil {
			done = append(done, id)
		}
		failed = append(failed, err)
	}
	if len(over) == len(ids) {
		return nil, errors.Join(over...)
	}
	return done, errors.Join(failed...)
}

// chain cancels those links of a chain that are not over, all with one command: otherwise the next link could begin in between.
func (c *Canceller) chain(ctx context.Context, run *rundir.Dir, ids []string) (done []string, err error) {
	open, err := c.View.Open(ctx, run, ids)
	switch {
	case errors.As(err, new(*usage.Error)):
		return nil, err
	case err != nil:
		open = ids
	case len(open) == 0:
		row, err := c.View.Status(ctx, run)
		if err != nil {
			return nil, err
		}
		return nil, alreadyEnded(row.Job, c.View.HowEnded(ctx, run, row.Job, row.State))
	}
	for _, id := range open {
		c.mark(run, id)
	}
	if err == nil {
		err = c.Env.Slurm.On(run.Cluster()).CancelNow(ctx, open[0], open[1:]...)
	}
	if err != nil {
		return nil, notCancelled(err)
	}
	return open, nil
}

func notCancelled(err error) error {
	return fmt.Errorf("%w (the run is marked as cancelled, so it will not be requeued until it is resumed)", err)
}

// job marks a job as canceled, and cancels it. unknown is the error if Slurm did not say whether the job is over.
func (c *Canceller) job(ctx context.Context, run *rundir.Dir, id string, unknown error) error {
	c.mark(run, id)
	err := unknown
	if err == nil {
		err = c.Env.Slurm.On(run.Cluster()).CancelNow(ctx, id)
	}
	if err != nil {
		return notCancelled(err)
	}
	return nil
}

// simulation asks the process that simulates a run to cancel it, as scancel does.
func (c *Canceller) simulation(ctx context.Context, run *rundir.Dir, id string) error {
	fd, ok := runview.OpenSimulation(run, id)
	if !ok {
		return alreadyEnded(id, c.View.HowEnded(ctx, run, id, ""))
	}
	defer unix.Close(fd)
	if _, ok := run.Index(); ok {
		return usage.Errorf("one process simulates all elements of an array; to cancel them all: ddpbatch cancel %s",
			c.View.From.Short(run.Whole().Path()))
	}
	c.mark(run, id)
	if err := unix.PidfdSendSignal(fd, unix.SIGTERM, nil, 0); err != nil {
		return fmt.Errorf("cancel %s: signal process %s: %w", c.View.From.Short(run.Path()), id, err)
	}
	return nil
}

// mark records the cancel in the ledger.
func (c *Canceller) mark(run *rundir.Dir, id string) {
	if err := c.Env.NoteCancel(run, id); err != nil {
		c.Env.Log.Warn("cannot record the cancel of the job in the run's ledger", "job", id, "error", err)
	}
}

// alreadyEnded returns the error of a cancel that came too late.
func alreadyEnded(id, how string) error {
	return &usage.Error{Message: fmt.Sprintf("job %s has ended already: %s", id, how), Hint: "there is nothing to cancel"}
}
