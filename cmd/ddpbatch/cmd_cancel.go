package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"ddpbatch/internal/exit"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/runview"
	"ddpbatch/internal/simulate"
	"ddpbatch/internal/submission"
	"ddpbatch/internal/usage"
)

// runDirFlag says where runs are looked for by job id.
func runDirFlag() cli.Flag {
	return &cli.StringFlag{Name: "runs", Usage: "the `FOLDER` of runs that job ids are looked up in", Value: "runs"}
}

func newCancelCommand(e *env) *cli.Command {
	return &cli.Command{
		Name:        "cancel",
		Usage:       "cancel jobs; `ddpbatch resume` goes on from their newest checkpoint",
		ArgsUsage:   "JOB...",
		Description: example("ddpbatch cancel 123", "ddpbatch cancel runs/mnist-20261121-101500-1a2b3c4d"),
		Flags:       []cli.Flag{runDirFlag()},
		Action: func(c *cli.Context) error {
			if !c.Args().Present() {
				return usage.Errorf("cancel needs a job id or a run directory")
			}
			return cancelAll(c.Context, e, e.abs(c.String("runs")), c.Args().Slice())
		},
	}
}

// cancelAll cancels every job that it can. The exit code is the largest of theirs.
func cancelAll(ctx context.Context, e *env, runs string, names []string) error {
	var failed []error
	code := exit.Done
	for _, name := range names {
		if err := runCancel(ctx, e, runs, name); err != nil {
			failed = append(failed, err)
			code = max(code, exitCode(err))
		}
	}
	if len(failed) == 0 {
		return nil
	}
	return &exit.Error{Code: code, Err: errors.Join(failed...)}
}

func runCancel(ctx context.Context, e *env, runs, name string) error {
	run, ids, err := findToCancel(e, runs, name)
	if err == nil {
		err = run.CheckCancel()
	}
	if err != nil {
		return err
	}
	if run.Spec().Kind == "simulate" {
		return cancelSimulation(ctx, e, run, ids[0])
	}
	if run.Spec().Kind != "slurm" {
		return usage.Errorf("%s was started by hand, not submitted; press Ctrl-C where it runs", e.short(run.Path()))
	}
	s, err := submission.Newest(ctx, run, false, submission.AskUserJobs(e.submitEnv().Slurm))
	if err != nil {
		return err
	}
	var recorded bool
	if run.IsOwn() { // root only looks
		recorded, err = e.submitEnv().RecordLost(s)
	}
	switch {
	case err != nil:
		return err
	case !run.IsOwn() && s.Open != nil && s.Job != "":
		ids = []string{s.Job}
	case recorded: // and there is a job more
		if run, ids, err = findToCancel(e, runs, name); err != nil {
			return err
		}
	case s.Open != nil && s.Asked != nil:
		return fmt.Errorf("look for the job of %s, which nobody lived to record: %w", e.short(run.Path()), s.Asked)
	case s.Open != nil && s.By != nil:
		return &usage.Error{
			Message: fmt.Sprintf("%s is just being submitted: %s", e.short(run.Path()), s.By),
			Hint:    "cancel it when that has ended",
		}
	case ids[0] == "":
		return usage.Errorf("%s has no job: its submission was cut short, and Slurm knows none of its script", e.short(run.Path()))
	}
	return cancelJobs(ctx, e, run, ids)
}

// cancelJobs cancels those of a run's jobs that are not over. That some are is an error only where all of them are.
func cancelJobs(ctx context.Context, e *env, run *rundir.Dir, ids []string) error {
	var over, failed []error
	done := false
	for _, id := range ids {
		how, hasEnded, err := e.viewer().Ended(ctx, run, id)
		switch {
		case hasEnded:
			over = append(over, alreadyEnded(id, how))
			continue
		case !errors.As(err, new(*usage.Error)):
			err = cancelJob(ctx, e, run, id, err)
		}
		failed = append(failed, err)
		done = done || err == nil
	}
	if len(over) == len(ids) {
		return errors.Join(over...)
	}
	if done && run.IsOwn() { // root does not start another user's program
		fmt.Fprintf(e.Out, "resume: %s\n", submission.ResumeCommand(run))
	}
	return errors.Join(failed...)
}

// cancelJob marks a job as cancelled, and cancels it; unknown is why Slurm did not say whether it is over.
func cancelJob(ctx context.Context, e *env, run *rundir.Dir, id string, unknown error) error {
	noteCancel(e, run, id)
	err := unknown
	if err == nil {
		err = e.submitEnv().Slurm.CancelNow(ctx, id)
	}
	if err != nil {
		return fmt.Errorf("%w (until it is resumed, the run will not be requeued, as it is marked as cancelled)", err)
	}
	fmt.Fprintf(e.Out, "cancelled job %s\n", id)
	return nil
}

// cancelSimulation asks the process that simulates a run to do what scancel does.
func cancelSimulation(ctx context.Context, e *env, run *rundir.Dir, id string) error {
	fd, ok := simulate.Open(run, id)
	if !ok {
		return alreadyEnded(id, e.viewer().HowEnded(ctx, run, id, ""))
	}
	defer unix.Close(fd)
	if _, ok := run.Index(); ok {
		return usage.Errorf("one process simulates all elements of an array; to cancel them all: ddpbatch cancel %s", e.short(run.Array().Path()))
	}
	noteCancel(e, run, id)
	if err := unix.PidfdSendSignal(fd, unix.SIGTERM, nil, 0); err != nil {
		return fmt.Errorf("cancel %s: tell process %s: %w", e.short(run.Path()), id, err)
	}
	fmt.Fprintf(e.Out, "cancelled job %s\n", id)
	if run.IsOwn() {
		fmt.Fprintf(e.Out, "resume: %s\n", submission.ResumeCommand(run))
	}
	return nil
}

// noteCancel writes a person's wish into the ledger before anybody acts on it: an attempt that ends just then must not requeue its job.
// The elements of an array find it in the array's ledger.
func noteCancel(e *env, run *rundir.Dir, id string) {
	job, _, _ := strings.Cut(id, ";") // less the cluster: as the job itself knows it
	if err := run.Append(rundir.Event{Time: e.Now(), Event: rundir.EventCancel, Job: job, Detail: "job " + id}); err != nil {
		e.log().Warn("the job is to be cancelled, but its ledger could not be written", "job", id, "error", err)
	}
}

// findToCancel is findJob that finds an array's element, too, which waits: it has no directory yet, and its cancel is noted in the array's.
// An array of which elements were resumed alone is several jobs: all of them where it is named by its path, and else the one that is named.
func findToCancel(e *env, runs, name string) (*rundir.Dir, []string, error) {
	_, err := findRun(e, runs, name)
	if array, id, waits := runview.WaitingElement(err); waits {
		return array, []string{id}, nil
	}
	run, id, err := findJob(e, runs, name)
	if err != nil {
		return nil, nil, err
	}
	ids, err := runview.JobsNamed(run, id, name)
	return run, ids, err
}

// findJob opens the run that a person names by job id or path, and tells its newest job id.
func findJob(e *env, runs, name string) (*rundir.Dir, string, error) {
	run, err := findRun(e, runs, name)
	if err != nil {
		return nil, "", &usage.Error{Message: runview.ExplainElement(e.dir(), err).Error()}
	}
	if !run.IsOwn() && !isPath(name) {
		e.log().Warn("this is the run of another user", "name", name, "run", e.short(run.Path()), "user", run.Owner())
	}
	id, err := runview.NewestJob(run)
	if err != nil {
		return nil, "", err
	}
	return run, id, nil
}

// findRun opens the run that a person names. A plain name means a job, or a run in runs, before it means a folder in the working
// directory: another user may have put that there.
func findRun(e *env, runs, name string) (*rundir.Dir, error) {
	if isPath(name) {
		return rundir.Find(runs, e.abs(name))
	}
	run, err := rundir.Find(runs, name)
	if errors.Is(err, rundir.ErrNotFound) && !rundir.IsJobID(name) {
		if run, err := rundir.Open(e.abs(name)); err == nil {
			return run, nil
		}
	}
	return run, err
}

// isPath reports whether name is a path, and not the plain name of a job or a run.
func isPath(name string) bool {
	return strings.ContainsRune(name, filepath.Separator) || name == "." || name == ".."
}

// alreadyEnded is the error of a cancel that came too late.
func alreadyEnded(id, how string) error {
	return &usage.Error{Message: fmt.Sprintf("job %s has ended already: %s", id, how), Hint: "there is nothing to cancel"}
}
