package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/urfave/cli/v2"

	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/rundir"
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
		fmt.Fprintf(e.Out, "%s is finished; for more of it: ddpbatch resume %s --set train.epochs=N\n", row.Name, e.short(run.Path()))
		return nil
	}
	job, err := resumedJob(e, run, o.sets)
	if err != nil {
		return err
	}
	if run.Spec().Kind == "simulate" {
		return simulateRun(ctx, e, run, job)
	}
	newID, err := submitRun(ctx, e, run, job, "", o.sbatch, "resume")
	if err != nil {
		return err
	}
	fmt.Fprintf(e.Out, "submitted job %s: %s\nrun directory: %s\n", newID, jobSummary(job), e.short(run.Path()))
	return afterSubmit(ctx, e, run, newID, o.wait, o.follow)
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
	spec.WorkDir, spec.Nodes, spec.Job, spec.Sets = fresh.WorkDir, fresh.Nodes, fresh.Job, fresh.Sets
	return job, run.WriteSpec(spec)
}
