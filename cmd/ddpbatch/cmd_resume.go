package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/urfave/cli/v2"

	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/rundir"
	"ddpbatch/slurm"
)

type resumeOptions struct {
	sets   []string
	sbatch []string
	wait   bool
	follow bool
}

func newResumeCommand(e *env) *cli.Command {
	return &cli.Command{
		Name:        "resume",
		Usage:       "run a job again in its own run directory, from its newest checkpoint",
		ArgsUsage:   "RUN [-- SBATCH-OPTIONS]",
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
			rest, err := sbatchWords(c)
			if err != nil {
				return err
			}
			return runResume(c.Context, e, run, id, resumeOptions{
				sets: c.StringSlice("set"), sbatch: rest, wait: c.Bool("wait"), follow: c.Bool("follow"),
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
		return sayFinished(e, run)
	}
	before := run.Spec()
	job, err := resumedJob(e, run, o.sets)
	if err != nil {
		return err
	}
	switch before.Kind {
	case "simulate":
		return simulateRun(ctx, e, run, job)
	case "train":
		return trainAgain(ctx, e, run, job)
	}
	if array, index, ok := elementOf(run); ok {
		// the script is the array's; of it, this element alone
		if run, err = rundir.Open(array); err != nil {
			return err
		}
		o.sbatch = append([]string{"--array=" + index}, o.sbatch...)
	}
	if err := writeScript(run, job, ""); err != nil {
		return err
	}
	newID, err := submitRun(ctx, e, run, o.sbatch, "resume")
	switch {
	case err != nil && notSubmitted(err) && len(o.sets) > 0:
		return errors.Join(err, run.WriteSpec(before)) // what Slurm did not take is not asked for again
	case err != nil:
		return err
	}
	fmt.Fprintf(e.Out, "submitted job %s: %s\nrun directory: %s\n", newID, jobSummary(job), e.short(run.Path()))
	return afterSubmit(ctx, e, run, newID, o.wait, o.follow)
}

// sayFinished tells what to do with a run that has nothing left to do.
func sayFinished(e *env, run *rundir.Dir) error {
	job, err := jobOf(run)
	if err != nil {
		return err
	}
	fmt.Fprintf(e.Out, "%s is finished", job.Name)
	if job.Builtin() {
		fmt.Fprintf(e.Out, "; for more of it: ddpbatch resume %s --set train.epochs=N", slurm.ShellQuote(e.short(run.Path())))
	}
	fmt.Fprintln(e.Out)
	return nil
}

// elementOf tells whether run is that of one element of an array (RUN/tasks/INDEX), and of which.
func elementOf(run *rundir.Dir) (array, index string, ok bool) {
	tasks, index := filepath.Split(run.Path())
	array, name := filepath.Split(filepath.Clean(tasks))
	return filepath.Clean(array), index, name == "tasks"
}

// resumedJob is the run's job, with sets over what it was started with; the
// spec is rewritten to hold them.
func resumedJob(e *env, run *rundir.Dir, sets []string) (*jobfile.Job, error) {
	if len(sets) == 0 {
		return jobOf(run)
	}
	spec := run.Spec()
	text, err := os.ReadFile(run.JobFilePath())
	if err != nil {
		return nil, fmt.Errorf("read the run's job file: %w", err)
	}
	sets = append(slices.Clone(spec.Sets), sets...)
	job, warnings, err := jobfile.Parse(run.JobFilePath(), filepath.Dir(spec.Source), text, sets)
	warn(e, warnings)
	if err != nil {
		return nil, err
	}
	fresh, err := specOf(spec.Kind, job, spec.Source, sets)
	if err != nil {
		return nil, err
	}
	return job, run.WriteSpec(spec.Override(rundir.Overridden{Sets: sets, WorkDir: fresh.WorkDir, Nodes: fresh.Nodes, Job: fresh.Job}))
}
