package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"ddpbatch/internal/cancel"
	"ddpbatch/internal/exit"
	"ddpbatch/internal/submission"
)

// runDirFlag is the flag for the directory in which runs are looked up by job ID.
func runDirFlag() cli.Flag {
	return &cli.StringFlag{
		Name: "runs", Usage: "the `FOLDER` of runs in which job ids are looked up",
		DefaultText: "run_dir of the site's or your own file, or runs",
	}
}

// runsFolder returns the directory of runs: that of the flag, or the default for jobs. If the defaults cannot be read, a job can still be
// canceled.
func runsFolder(e *env, c *cli.Context) string {
	if named := c.String("runs"); named != "" {
		return e.abs(named)
	}
	d, err := readDefaults(e)
	if err != nil {
		e.log().Warn("runs are looked for in runs/ here: the site's or your own file, which may name another place, cannot be read",
			"error",
			err)
	}
	return cmp.Or(d.RunDir(), e.abs("runs"))
}

func newCancelCommand(e *env) *cli.Command {
	return &cli.Command{
		Name:        "cancel",
		Usage:       "cancel jobs; `ddpbatch resume` continues from their newest checkpoint",
		ArgsUsage:   "JOB...",
		Description: example("ddpbatch cancel 123", "ddpbatch cancel runs/mnist-20261121-101500-1a2b3c4d"),
		Flags:       []cli.Flag{runDirFlag(), jsonFlag()},
		Action: func(c *cli.Context) error {
			if err := checkWords(c, 1, -1); err != nil {
				return err
			}
			return e.replying(c.Bool("json"), func(e *env) error {
				return cancelAll(c.Context, e, runsFolder(e, c), c.Args().Slice())
			})
		},
	}
}

// cancelAll cancels every job that it can. The exit code is the largest of theirs.
func cancelAll(ctx context.Context, e *env, runs string, names []string) error {
	var failed []error
	code := exit.Done
	done := cancelReply{Jobs: []string{}, Runs: []cancelledRun{}}
	for _, name := range names {
		cancelled, err := runCancel(ctx, e, runs, name)
		if len(cancelled.Jobs) > 0 {
			done.Jobs, done.Runs = append(done.Jobs, cancelled.Jobs...), append(done.Runs, cancelled)
		}
		if err != nil {
			failed = append(failed, err)
			code = max(code, exitCode(err))
		}
	}
	if e.reply != nil {
		done.Warnings = e.reply.warnings()
		if err := printJSON(e, done); err != nil {
			return err
		}
	}
	if len(failed) == 0 {
		return nil
	}
	return &exit.Error{Code: code, Err: errors.Join(failed...)}
}

// cancelReply is what was canceled, in JSON (docs/cli/json.md).
type cancelReply struct {
	Jobs     []string       `json:"jobs"`
	Runs     []cancelledRun `json:"runs"`
	Warnings []string       `json:"warnings"`
}

// cancelledRun holds the canceled jobs of one run.
type cancelledRun struct {
	RunDir string   `json:"run_dir"`
	Jobs   []string `json:"jobs"`
	Resume string   `json:"resume"` // the command to continue the run; empty for a run of another user
}

func runCancel(ctx context.Context, e *env, runs, name string) (done cancelledRun, err error) {
	c := cancel.Canceller{Env: e.submitEnv(), View: e.viewer(), Runs: runs}
	run, ids, err := c.Cancel(ctx, name)
	if len(ids) == 0 {
		return done, err
	}
	done.RunDir, done.Jobs = run.Path(), ids
	if run.IsOwn() { // root must not start another user's program
		done.Resume = submission.ResumeCommand(run)
	}
	if e.reply != nil {
		return done, err
	}
	for _, id := range ids {
		fmt.Fprintf(e.Out, "cancelled job %s\n", id)
	}
	when := ""
	if _, isElement := run.Index(); !isElement && strings.Contains(ids[0], "_") { // an element that has not begun
		when = ", once the array has ended"
	}
	if done.Resume != "" {
		fmt.Fprintf(e.Out, "resume%s: %s\n", when, done.Resume)
	}
	return done, err
}
