package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"ddpbatch/internal/cancel"
	"ddpbatch/internal/exit"
	"ddpbatch/internal/submission"
)

// runDirFlag says where runs are looked for by job id.
func runDirFlag() cli.Flag {
	return &cli.StringFlag{Name: "runs", Usage: "the `FOLDER` of runs that job ids are looked up in", DefaultText: "run_dir of the site's or your own file, else runs"}
}

// runsFolder is where runs are looked for: where the flag says, or where jobs make them that do not say. Defaults that cannot be read keep
// nobody from cancelling a job.
func runsFolder(e *env, c *cli.Context) string {
	if named := c.String("runs"); named != "" {
		return e.abs(named)
	}
	d, err := readDefaults(e)
	if err != nil {
		e.log().Warn("runs are looked for in runs/ here: the site's or your own file may name another place, and cannot be read", "error", err)
	}
	return cmp.Or(d.RunDir(), e.abs("runs"))
}

func newCancelCommand(e *env) *cli.Command {
	return &cli.Command{
		Name:        "cancel",
		Usage:       "cancel jobs; `ddpbatch resume` goes on from their newest checkpoint",
		ArgsUsage:   "JOB...",
		Description: example("ddpbatch cancel 123", "ddpbatch cancel runs/mnist-20261121-101500-1a2b3c4d"),
		Flags:       []cli.Flag{runDirFlag()},
		Action: func(c *cli.Context) error {
			if err := checkWords(c, 1, -1); err != nil {
				return err
			}
			return cancelAll(c.Context, e, runsFolder(e, c), c.Args().Slice())
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
	c := cancel.Canceller{Env: e.submitEnv(), View: e.viewer(), Runs: runs}
	run, ids, err := c.Cancel(ctx, name)
	for _, id := range ids {
		fmt.Fprintf(e.Out, "cancelled job %s\n", id)
	}
	if len(ids) > 0 && run.IsOwn() { // root does not start another user's program
		fmt.Fprintf(e.Out, "resume: %s\n", submission.ResumeCommand(run))
	}
	return err
}
