package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/rundir"
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
		Description: example("ddpbatch resume 123", "ddpbatch resume runs/mnist-20261121-101500-1a2b --set train.epochs=20"),
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
			run, id, err := findJob(e, e.abs(c.String("runs")), name)
			if err != nil {
				return err
			}
			_, rest, _ := splitDash(c.Args().Slice())
			return runResume(c.Context, e, run, id, resumeOptions{
				sets: c.StringSlice("set"), rest: rest, wait: c.Bool("wait"), follow: c.Bool("follow"),
			})
		},
	}
}

func runResume(ctx context.Context, e *env, run *rundir.Dir, id string, o resumeOptions) error {
	row, err := statusOf(ctx, e, run)
	if err != nil {
		return err
	}
	if !row.ended {
		return usagef("job %s is still %s; wait for its end, or cancel it: ddpbatch cancel %s", id, row.State, id)
	}
	if len(o.sets) == 0 && row.Attempt > 0 && row.Exit != nil && *row.Exit == 0 {
		return sayFinished(e, run, o.rest)
	}
	if err := checkAnew(e, run, o.sets, o.rest); err != nil {
		return err
	}
	before := run.Spec()
	if before.Kind == "simulate" {
		return resumeSimulated(ctx, e, run, o.sets, o.rest)
	}
	if before.Kind == "train" && len(o.rest) > 0 {
		return usagef("%q: a run of train is resumed by train, which takes no words behind --", o.rest[0])
	}
	if err := checkSbatchWords(o.rest); err != nil {
		return err
	}
	job, err := resumedJob(e, run, before.Sets, o.sets, before.Pretend)
	if err != nil {
		return err
	}
	if before.Kind == "train" {
		return trainAgain(ctx, e, run, job)
	}
	element, resumed := run, rundir.Event{Event: rundir.EventResume}
	if array, index, ok := elementOf(run); ok {
		// the script is the array's; of it, this element alone
		if run, err = rundir.Open(array); err != nil {
			return err
		}
		o.rest = append([]string{"--array=" + index}, o.rest...)
		number, _ := element.Index()
		resumed.Element = &number
	}
	if err := writeScript(run, job, ""); err != nil {
		return err
	}
	newID, err := submitRun(ctx, e, run, o.rest, resumed)
	if err == nil && element != run { // whose ledger is its own
		if err := element.Append(rundir.Event{Time: e.Now(), Event: rundir.EventResume, Detail: "job " + newID}); err != nil {
			e.log().Warn("the job is submitted, but its element's ledger does not know", "job", newID, "error", err)
		}
	}
	switch {
	case err != nil && notSubmitted(err) && len(o.sets) > 0:
		return errors.Join(err, run.WriteSpec(before)) // what Slurm did not take is not asked for again
	case err != nil:
		return err
	}
	fmt.Fprintf(e.Out, "submitted job %s: %s\nrun directory: %s\n", newID, jobSummary(job), e.short(run.Path()))
	return afterSubmit(ctx, e, run, newID, o.wait, o.follow)
}

// sayFinished tells what to do with a run that has nothing left to do. Words behind -- would be for one that goes on.
func sayFinished(e *env, run *rundir.Dir, words []string) error {
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
		more := moreTraining(job.Train, m.Step, epochs, early)
		hint = fmt.Sprintf("; for more of it: ddpbatch resume %s --set %s", slurm.ShellQuote(e.short(run.Path())), strings.Join(more, " --set "))
	}
	if len(words) > 0 {
		return usagef("%s is finished, so that nothing is run with %q%s", job.Name, words[0], hint)
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
	tasks, index := filepath.Split(run.Path())
	array, name := filepath.Split(filepath.Clean(tasks))
	return filepath.Clean(array), index, name == "tasks"
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

// setKey is the key of the job file that a word of --set is about.
func setKey(set string) string {
	key, _, _ := strings.Cut(set, "=")
	return strings.TrimSpace(key)
}
