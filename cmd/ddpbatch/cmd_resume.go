package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"ddpbatch/internal/builtin"
	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/redact"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/runview"
	"ddpbatch/internal/submit"
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
		Action: func(c *cli.Context) error {
			name, err := oneArg(c, "run directory or job id")
			if err != nil {
				return err
			}
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
		},
	}
}

func runResume(ctx context.Context, e *env, run *rundir.Dir, o resumeOptions) error {
	if run.Spec().Kind == "train" { // by all its ranks at once
		return resumeClaimed(ctx, e, run, nil, func() {}, o)
	}
	release, claim, err := e.submitEnv().Claim(run, rundir.EventResume)
	if errors.As(err, new(*usage.Error)) {
		if row, statusErr := statusOf(ctx, e, run); statusErr == nil && row.Simulated { // by the process that has the claim
			err = stillThere(row.Job, row.State)
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
	row, err := settledStatus(ctx, e, run)
	if err != nil {
		return err
	}
	if !row.Ended {
		return stillThere(row.Job, row.State)
	}
	if row.Finished() && !moreToDo(run, o.sets) {
		return sayFinished(e, run, o.sets, o.rest)
	}
	if err := checkAnew(e, run, o.sets, o.rest); err != nil {
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
		if err := submit.CheckClaim(claim); err != nil {
			return err
		}
	}
	job, err := resumedJob(e, run, before.Sets, o.sets, before.Pretend)
	if err != nil {
		return err
	}
	if before.Kind == "train" {
		return trainAgain(ctx, e, run, job)
	}
	if len(o.sets) > 0 {
		unfit := checkFits(ctx, e, run, job)
		if err := submit.CheckClaim(claim); err != nil {
			return errors.Join(unfit, err)
		}
		if unfit != nil {
			return errors.Join(unfit, run.WriteSpec(before)) // the nodes would find the same
		}
	}
	resumed := rundir.Event{Detail: rundir.EventResume}
	if array, index, ok := elementOf(run); ok {
		// the script is the array's; of it, this element alone
		number, _ := run.Index()
		if run, err = rundir.Open(array); err != nil {
			return err
		}
		o.rest = append([]string{"--array=" + index}, o.rest...)
		resumed.Element = &number
	}
	if err := writeScript(run, job, "", o.rest); err != nil {
		return err
	}
	newID, err := e.submitEnv().Submit(ctx, run, claim, o.rest, resumed)
	switch {
	case errors.Is(err, rundir.ErrClaimLost):
		return err // the run is another command's to submit: nothing of it is undone
	case err != nil && submit.NotSubmitted(err) && len(o.sets) > 0:
		return errors.Join(err, run.WriteSpec(before)) // what Slurm did not take is not asked for again
	case err != nil && submit.NotSubmitted(err):
		return err
	case err != nil:
		return fmt.Errorf("%w; Slurm may have taken the job all the same: ddpbatch status %s", err, slurm.ShellQuote(run.Path()))
	}
	release()
	fmt.Fprintf(e.Out, "submitted job %s: %s\nrun directory: %s\n", newID, job.Summary(), e.short(run.Path()))
	warnStuck(ctx, e, newID)
	return afterSubmit(ctx, e, run, newID, o.wait, o.follow)
}

// settledStatus is the status of a run that is to be submitted again. What nobody lived to record of its newest submission is
// recorded first, and Slurm must know no other job of its script: without Slurm's word nothing is submitted.
func settledStatus(ctx context.Context, e *env, run *rundir.Dir) (runview.RunStatus, error) {
	s, err := submit.Newest(ctx, run, true, askUserJobs(e))
	if err != nil {
		return runview.RunStatus{}, err
	}
	if _, err := e.submitEnv().Finalize(s); err != nil {
		return runview.RunStatus{}, err
	}
	row, err := statusOf(ctx, e, run)
	switch {
	case err != nil:
		return row, err
	case s.Asked != nil && (s.Open != nil || row.Ended && !row.Finished()):
		return row, fmt.Errorf("look whether the run has a job that has not ended: %w", s.Asked)
	case !row.Ended:
		return row, nil
	case s.Alive != nil:
		return row, stillThere(s.Alive.ID, s.Alive.State)
	}
	return row, nil
}

func stillThere(id, state string) error {
	return usage.Errorf("job %s is still %s; wait for its end, or cancel it: ddpbatch cancel %s", id, state, id)
}

// moreToDo tells whether sets may give a finished run something to do: what is trained, or run, and not on what.
func moreToDo(run *rundir.Dir, sets []string) bool {
	job, err := jobOf(run)
	return err == nil && (asksAnew(sets) || slices.ContainsFunc(sets, func(set string) bool {
		table, _, _ := strings.Cut(jobfile.SetKey(set), ".")
		if job.Builtin() {
			return table == "train"
		}
		return !slices.Contains([]string{"slurm", "setup", "requeue", "checkpoint"}, table)
	}))
}

// sayFinished tells what to do with a run that has nothing left to do. Words behind -- would be for one that goes on.
func sayFinished(e *env, run *rundir.Dir, sets, words []string) error {
	job, err := jobOf(run)
	if err != nil {
		return err
	}
	hint := ""
	if job.Builtin() {
		m, err := trainedSoFar(run)
		if err != nil {
			return err
		}
		early, epochs := job.Train.Evaluate.Patience > 0 && m.Step < m.Steps, m.Epoch+1 // that all of the last one is trained the metrics do not tell
		if early {
			epochs = m.Epoch
		}
		more := builtin.MoreTraining(job.Train, m.Step, epochs, early)
		hint = fmt.Sprintf("; for more of it: ddpbatch resume %s --set %s", slurm.ShellQuote(e.short(run.Path())), strings.Join(more, " --set "))
	}
	if len(words) > 0 {
		return usage.Errorf("%s is finished, so that nothing is run with %q%s", job.Name, redact.Text(words[0]), hint)
	}
	if len(sets) > 0 {
		hint = fmt.Sprintf(", and --set %s gives it nothing to do%s", redact.Text(sets[0]), hint)
	}
	fmt.Fprintf(e.Out, "%s is finished%s\n", job.Name, hint)
	return nil
}

// trainedSoFar are the newest metrics of a run; of an array, those of its first element, which stands for all of them.
func trainedSoFar(run *rundir.Dir) (rundir.Metrics, error) {
	m, ok, err := run.LastMetrics()
	if ok || err != nil {
		return m, err
	}
	elements, err := run.Elements()
	if err == nil && len(elements) > 0 {
		m, _, err = elements[0].LastMetrics()
	}
	return m, err
}

// elementOf tells whether run is that of one element of an array (RUN/tasks/INDEX), and of which.
func elementOf(run *rundir.Dir) (array, index string, ok bool) {
	number, ok := run.Index()
	return filepath.Dir(filepath.Dir(run.Path())), strconv.Itoa(number), ok
}

// resumedJob is the run's job, with sets over what is kept of those that it was started with; the
// spec is rewritten to hold them, and simulate's flags.
func resumedJob(e *env, run *rundir.Dir, kept, sets, pretend []string) (*jobfile.Job, error) {
	spec := run.Spec()
	if len(sets) == 0 && slices.Equal(kept, spec.Sets) && slices.Equal(pretend, spec.Pretend) {
		return jobOf(run)
	}
	anew, elements, err := anewFrom(run, sets)
	if err != nil {
		return nil, err
	}
	text, err := readText(context.Background(), run.JobFilePath())
	if err != nil {
		return nil, fmt.Errorf("read the run's job file: %w", err)
	}
	sets = slices.Concat(kept, sets)
	job, warnings, err := jobfile.Parse(run.JobFilePath(), filepath.Dir(spec.Source), text, sets)
	warn(e, warnings)
	if err != nil {
		return nil, err
	}
	fresh, err := specOf(spec.Kind, job, spec.Source, sets)
	if err != nil {
		return nil, err
	}
	changed := rundir.Overridden{Sets: sets, Anew: anew, AnewElements: elements, Pretend: pretend, WorkDir: fresh.WorkDir, Nodes: fresh.Nodes, Job: fresh.Job}
	if index, ok := run.Index(); ok {
		changed.Element = &index
	}
	return job, run.WriteSpec(spec.Override(changed))
}
