package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/urfave/cli/v2"

	"ddpbatch/internal/builtin"
	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/redact"
	"ddpbatch/internal/resume"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/runview"
	"ddpbatch/internal/submission"
	"ddpbatch/internal/usage"
	"ddpbatch/slurm"
)

type resumeOptions struct {
	sets   []string
	rest   []string // words behind --: for sbatch, or of a simulated run for simulate
	wait   bool
	follow bool
}

func newResumeCommand(e *env) *cli.Command {
	return &cli.Command{
		Name:        "resume",
		Usage:       "run a job again in its own run directory, from its newest checkpoint",
		ArgsUsage:   "RUN [-- SBATCH-OPTIONS | SIMULATE-FLAGS]",
		Description: example("ddpbatch resume 123", "ddpbatch resume runs/mnist-20261121-101500-1a2b3c4d --set train.epochs=20"),
		Flags: []cli.Flag{
			setFlag(), runDirFlag(),
			&cli.BoolFlag{Name: "wait", Usage: "wait for the job's end; exit with its code"},
			&cli.BoolFlag{Name: "follow", Usage: "show the job's output until its end; exit with its code"},
		},
		Action: withArg("run directory or job id", func(c *cli.Context, name string) error {
			run, _, err := findJob(e, e.abs(c.String("runs")), name)
			if err != nil {
				return err
			}
			if err := checkOwn(e, run); err != nil {
				return err
			}
			_, rest, _ := splitDash(c.Args().Slice())
			return runResume(c.Context, e, run, resumeOptions{
				sets: c.StringSlice("set"), rest: rest, wait: c.Bool("wait"), follow: c.Bool("follow"),
			})
		}),
	}
}

func runResume(ctx context.Context, e *env, run *rundir.Dir, o resumeOptions) error {
	if run.Spec().Kind == "train" { // by all its ranks at once
		return resumeClaimed(ctx, e, run, nil, func() {}, o)
	}
	release, claim, err := e.submitEnv().Claim(run, rundir.EventResume)
	if errors.As(err, new(*usage.Error)) {
		if row, statusErr := e.viewer().Status(ctx, run); statusErr == nil && row.Simulated { // by the process that has the claim
			err = notEnded(row.Job, row.State)
		}
	}
	if err != nil {
		return err
	}
	defer release()
	return resumeClaimed(ctx, e, run, claim, release, o)
}

// resumeClaimed resumes a run that nobody else submits meanwhile; release is called once its job is recorded.
func resumeClaimed(ctx context.Context, e *env, run *rundir.Dir, claim *rundir.Claim, release func(), o resumeOptions) error {
	row, err := statusToResume(ctx, e, run)
	if err != nil {
		return err
	}
	if !row.Ended {
		return notEnded(row.Job, row.State)
	}
	if row.Finished() && !resume.MoreToDo(run, o.sets) {
		line, err := resume.Finished(run, e.short(run.Path()), o.sets, o.rest)
		if err == nil {
			fmt.Fprintln(e.Out, line)
		}
		return err
	}
	if err := resume.CheckAnew(e.short(run.Path()), o.sets, o.rest); err != nil {
		return err
	}
	before := run.Spec()
	if before.Kind == "simulate" {
		return resumeSimulated(ctx, e, run, o.sets, o.rest)
	}
	if before.Kind == "train" && len(o.rest) > 0 {
		return usage.Errorf("%q: a run of train is resumed by train, which takes no words behind --", redact.Text(o.rest[0]))
	}
	if err := checkSbatchWords(o.rest); err != nil {
		return err
	}
	if claim != nil {
		if err := submission.CheckClaim(claim); err != nil {
			return err
		}
	}
	job, err := resumedJob(ctx, e, run, before.Sets, o.sets, before.Pretend)
	if err != nil {
		return err
	}
	if before.Kind == "train" {
		if err := builtin.RefuseSingleton(e.lookup); err != nil {
			return err
		}
		return e.rank(job, run).Work(ctx)
	}
	if len(o.sets) > 0 {
		unfit := resume.CheckFits(ctx, run, job, e.log())
		if err := submission.CheckClaim(claim); err != nil {
			return errors.Join(unfit, err)
		}
		if unfit != nil {
			return errors.Join(unfit, run.WriteSpec(before)) // the nodes would find the same
		}
	}
	resumed := rundir.Event{Detail: rundir.EventResume}
	if index, ok := run.Index(); ok {
		run = run.Array() // whose the script is; of it, this element alone
		o.rest = append([]string{"--array=" + strconv.Itoa(index)}, o.rest...)
		resumed.Element = &index
	}
	if err := writeScript(run, job, "", o.rest); err != nil {
		return err
	}
	newID, err := e.submitEnv().Submit(ctx, run, claim, o.rest, resumed)
	switch {
	case errors.Is(err, rundir.ErrClaimLost):
		return err // the run is another command's to submit: nothing of it is undone
	case err != nil && submission.NotSubmitted(err) && len(o.sets) > 0:
		return errors.Join(err, run.WriteSpec(before)) // what Slurm did not take is not asked for again
	case err != nil && submission.NotSubmitted(err):
		return err
	case err != nil:
		return fmt.Errorf("%w; Slurm may have taken the job all the same: ddpbatch status %s", err, slurm.ShellQuote(run.Path()))
	}
	release()
	fmt.Fprintf(e.Out, "submitted job %s: %s\nrun directory: %s\n", newID, job.Summary(), e.short(run.Path()))
	warnStuck(ctx, e, newID)
	return afterSubmit(ctx, e, run, newID, o.wait, o.follow)
}

// statusToResume is the status of a run that is to be submitted again. What nobody lived to record of its newest submission is
// recorded first, and Slurm must know no other job of its script: without Slurm's word nothing is submitted.
func statusToResume(ctx context.Context, e *env, run *rundir.Dir) (runview.RunStatus, error) {
	s, err := submission.Newest(ctx, run, true, submission.AskUserJobs(e.submitEnv().Slurm))
	if err != nil {
		return runview.RunStatus{}, err
	}
	if _, err := e.submitEnv().RecordLost(s); err != nil {
		return runview.RunStatus{}, err
	}
	row, err := e.viewer().Status(ctx, run)
	switch {
	case err != nil:
		return row, err
	case s.Asked != nil && (s.Open != nil || row.Ended && !row.Finished()):
		return row, fmt.Errorf("look whether the run has a job that has not ended: %w", s.Asked)
	case !row.Ended:
		return row, nil
	case s.Alive != nil:
		return row, notEnded(s.Alive.ID, s.Alive.State)
	}
	return row, nil
}

func notEnded(id, state string) error {
	return usage.Errorf("job %s is still %s; wait for its end, or cancel it: ddpbatch cancel %s", id, state, id)
}

// resumedJob is the job of a run that is run again; warnings are printed.
func resumedJob(ctx context.Context, e *env, run *rundir.Dir, kept, sets, pretend []string) (*jobfile.Job, error) {
	job, warnings, err := resume.Job(ctx, run, kept, sets, pretend)
	warn(e, warnings)
	return job, err
}
