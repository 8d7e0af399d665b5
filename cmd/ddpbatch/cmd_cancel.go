package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"ddpbatch/internal/rundir"
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
		Description: example("ddpbatch cancel 123", "ddpbatch cancel runs/mnist-20261121-101500-1a2b"),
		Flags:       []cli.Flag{runDirFlag()},
		Action: func(c *cli.Context) error {
			if !c.Args().Present() {
				return usagef("cancel needs a job id or a run directory")
			}
			var failed []error
			for _, name := range c.Args().Slice() {
				failed = append(failed, runCancel(c.Context, e, e.abs(c.String("runs")), name))
			}
			return errors.Join(failed...)
		},
	}
}

func runCancel(ctx context.Context, e *env, runs, name string) error {
	run, id, err := findJob(e, runs, name)
	if err != nil {
		return err
	}
	if run.Spec().Kind != "slurm" {
		return usagef("%s was started by hand, not submitted; press Ctrl-C where it runs", e.short(run.Path()))
	}
	if id == "" {
		return usagef("%s has no job id: its submission was never confirmed; see squeue", e.short(run.Path()))
	}
	client, _ := newSlurmClient(e)
	if err := client.Cancel(ctx, id); err != nil {
		return err
	}
	if err := run.Append(rundir.Event{Time: e.Now(), Event: "cancel", Detail: "job " + id}); err != nil {
		e.log().Warn("the job is cancelled, but its ledger could not be written", "job", id, "error", err)
	}
	fmt.Fprintf(e.Out, "cancelled job %s\nresume: %s\n", id, resumeCommand(run, ""))
	return nil
}

// findJob opens the run that a person names by job id or path, and tells its newest job id.
func findJob(e *env, runs, name string) (*rundir.Dir, string, error) {
	// a folder that happens to be called 123 is not job 123
	if _, err := rundir.Open(e.abs(name)); err == nil || strings.ContainsRune(name, filepath.Separator) {
		name = e.abs(name)
	}
	run, err := rundir.Find(runs, name)
	if err != nil {
		return nil, "", &usageError{message: err.Error()}
	}
	id, err := run.JobID()
	if err != nil {
		return nil, "", err
	}
	return run, id, nil
}
