package main

import (
	"context"
	"strconv"

	"github.com/urfave/cli/v2"

	"ddpbatch/internal/rundir"
	"ddpbatch/internal/runview"
	"ddpbatch/internal/usage"
	streams "ddpbatch/mpi/launch/output"
)

func newLogsCommand(e *env) *cli.Command {
	return &cli.Command{
		Name:        "logs",
		Usage:       "print a job's output; -f follows it until its end",
		ArgsUsage:   "JOB",
		Description: example("ddpbatch logs -f 123", "ddpbatch logs 123 --rank 0,3-5", "ddpbatch logs 123 --rank 3 --attempt all"),
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "follow", Aliases: []string{"f"},
				Usage: "follow the output until the job ends, across restarts and requeues"},
			&cli.StringFlag{Name: "rank", Usage: "only the standard output and error of these `RANKS`: 3, or 0,3-5"},
			&cli.StringFlag{Name: "attempt",
				Usage: "the ranks' output in attempt `N`, or in all (default with --rank: the newest, and with -f also later ones)"},
			runDirFlag(),
		},
		Action: withArg("job id or run directory", func(c *cli.Context, name string) (err error) {
			o := runview.Logs{Name: name, OfRanks: c.IsSet("rank") || c.IsSet("attempt"), Follow: c.Bool("follow")}
			if o.Ranks, err = parseLogRanks(c); err != nil {
				return err
			}
			if o.First, o.Last, err = parseLogAttempts(c.String("attempt"), c.IsSet("attempt")); err != nil {
				return err
			}
			run, id, err := e.viewer().Find(runsFolder(e, c), name)
			if err != nil {
				return err
			}
			return e.viewer().ShowLogs(c.Context, run, id, o)
		}),
	}
}

func parseLogRanks(c *cli.Context) ([]int, error) {
	if !c.IsSet("rank") {
		return nil, nil
	}
	ranks, err := streams.ParseRanks(c.String("rank"))
	switch {
	case err != nil:
		return nil, usage.Errorf("--rank %v", err)
	case len(ranks) == 0:
		return nil, usage.Errorf("--rank is empty")
	}
	return ranks, nil
}

// parseLogAttempts parses --attempt. It returns the first attempt (0: the newest) and the last (0: no limit).
func parseLogAttempts(text string, given bool) (first, last int, err error) {
	switch {
	case !given:
		return 0, 0, nil
	case text == "all":
		return 1, 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, 0, usage.Errorf("--attempt is %q: give a number from 1, or all", text)
	}
	return n, n, nil
}

// afterSubmit waits for the job or follows its output, as --wait and --follow request.
func afterSubmit(ctx context.Context, e *env, run *rundir.Dir, id string, wait, follow bool) error {
	switch {
	case follow:
		return e.viewer().Follow(ctx, run, id)
	case wait:
		return e.viewer().Wait(ctx, run, id)
	}
	return nil
}
