package main

import (
	"context"
	"fmt"
	"os/signal"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"ddpbatch/internal/attempt"
	"ddpbatch/internal/rundir"
	"ddpbatch/slurm"
)

// newAttemptCommand returns the command that the batch script calls before and after srun. It is hidden because users do not type it.
func newAttemptCommand(e *env) *cli.Command {
	return &cli.Command{
		Name:   "attempt",
		Usage:  "begin and end an attempt of a run (for the batch script)",
		Hidden: true,
		Subcommands: []*cli.Command{
			{
				Name: "begin", Usage: "claim the next attempt; print its variables for eval", ArgsUsage: "RUN",
				Action: withArg("run directory", func(c *cli.Context, path string) error { return runAttemptBegin(c.Context, e, path) }),
			},
			{
				Name: "watch", Usage: "end srun if it still waits for lost agents after the run has ended", ArgsUsage: "RUN",
				Flags: []cli.Flag{&cli.IntFlag{Name: "srun", Usage: "`PID` of srun", Required: true}},
				Action: withArg("run directory", func(c *cli.Context, path string) error {
					signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2) // not for this process
					run, err := rundir.OpenOwn(e.abs(path))
					if err != nil {
						return err
					}
					return attempt.Watch(c.Context, e.attemptEnv(), run, c.Int("srun"))
				}),
			},
			{
				Name: "end", Usage: "record how srun ended; requeue the job, or exit with the attempt's code", ArgsUsage: "RUN",
				Flags: []cli.Flag{
					&cli.IntFlag{Name: "code", Usage: "srun's exit `CODE`", Required: true},
					&cli.StringFlag{Name: "signals", Usage: "`NAMES` of the signals that the script received, separated by blanks"},
					&cli.BoolFlag{Name: "unstarted",
						Usage: "srun was not called, because the job is about to end; CODE is that of the signal"},
				},
				Action: withArg("run directory", func(c *cli.Context, path string) error {
					// Slurm sends TERM when it ends the job, and when it requeues it. This process and the commands that it runs, which
					// inherit this, must not end before they are done. KILL follows soon enough.
					signal.Ignore(syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)
					fmt.Fprintln(e.Out, "heard")
					return runAttemptEnd(c.Context, e, path, attempt.SrunEnd{
						Code: c.Int("code"), Signals: strings.Fields(c.String("signals")), Unstarted: c.Bool("unstarted"),
						Failure: e.get("DDPBATCH_SETUP_FAILURE"),
					})
				}),
			},
		},
	}
}

// attemptEnv returns what package attempt needs to know of this process.
func (e *env) attemptEnv() attempt.Env {
	return attempt.Env{Env: e.submitEnv(), Lookup: e.lookup, Environ: e.Environ, Err: e.Err}
}

func runAttemptBegin(ctx context.Context, e *env, path string) error {
	run, err := rundir.OpenOwn(e.abs(path))
	if err != nil {
		return err
	}
	environ, over, err := attempt.Begin(ctx, e.attemptEnv(), run)
	if err != nil {
		return err
	}
	if over {
		fmt.Fprintf(e.Err, "ddpbatch: the run is done, but its job was started again: there is nothing to do\n")
		fmt.Fprintln(e.Out, "exit 0")
	}
	for _, pair := range environ {
		fmt.Fprintln(e.Out, "export "+slurm.ShellAssign(pair))
	}
	return nil
}

func runAttemptEnd(ctx context.Context, e *env, path string, end attempt.SrunEnd) error {
	run, err := rundir.OpenOwn(e.abs(path))
	if err != nil {
		return err
	}
	return attempt.End(ctx, e.attemptEnv(), run, end)
}
