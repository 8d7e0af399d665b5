package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/urfave/cli/v2"

	"ddpbatch/internal/rundir"
	"ddpbatch/internal/runview"
	"ddpbatch/mpi/launch/recovery"
	"ddpbatch/slurm"
)

func newStatusCommand(e *env) *cli.Command {
	return &cli.Command{
		Name:        "status",
		Usage:       "show jobs: state, attempt, step, loss; all runs here where none is named",
		ArgsUsage:   "[JOB...]",
		Description: example("ddpbatch status", "ddpbatch status 123 --json"),
		Flags:       []cli.Flag{runDirFlag(), jsonFlag()},
		Action: func(c *cli.Context) error {
			runs, err := namedRuns(e, runsFolder(e, c), c.Args().Slice())
			if err != nil {
				return err
			}
			return runStatus(c.Context, e, runs, c.Args().Present(), c.Bool("json"))
		},
	}
}

// namedRuns opens the runs that are named, or all below parent where none is.
func namedRuns(e *env, parent string, names []string) ([]*rundir.Dir, error) {
	if len(names) == 0 {
		return rundir.List(parent)
	}
	var runs []*rundir.Dir
	for _, name := range names {
		run, _, err := e.viewer().Find(parent, name)
		if err != nil {
			return nil, err
		}
		runs = append(runs, run)
	}
	return runs, nil
}

// runStatus prints a row for each run. If the user named the runs, one that cannot be read is an error. If not, it gets a row with the
// reason, so that a run of another user cannot hide the others.
func runStatus(ctx context.Context, e *env, runs []*rundir.Dir, named, asJSON bool) error {
	rows, err := e.viewer().Statuses(ctx, runs)
	if err != nil {
		return err
	}
	for i, row := range rows {
		switch {
		case row.Failed == nil:
		case named || ctx.Err() != nil || errors.Is(row.Failed, slurm.ErrUnreachable):
			return row.Failed
		default:
			run := runs[i]
			rows[i] = runview.RunStatus{Job: row.Job, Name: run.Spec().Name, State: "UNKNOWN", Reason: row.Failed.Error(), RunDir: run.Path()}
		}
	}
	if asJSON {
		return printJSON(e, rows)
	}
	if len(rows) == 0 {
		fmt.Fprintln(e.Err, "no runs here")
		return nil
	}
	t := newTable(e, "JOB", "NAME", "STATE", "ATTEMPT", "CAUSE", "STEP", "LOSS", "RUN", "REASON")
	for _, r := range rows {
		step, loss := "-", "-"
		if r.Step != nil {
			step = fmt.Sprintf("%d/%d", *r.Step, *r.Steps)
		}
		if r.Loss != nil { // an attempt that first ends an evaluation has none yet
			loss = strconv.FormatFloat(*r.Loss, 'g', 4, 64)
		}
		reason := cmp.Or(r.Next, r.Reason, r.Message)
		if r.Cause == string(recovery.Start) && r.Next != "" && r.Message != "" {
			reason += ": " + r.Message // what was not started, and why
		}
		t.Row(r.Job, r.Name, r.State, strconv.Itoa(r.Attempt), cmp.Or(r.Cause, "-"), step, loss, e.short(r.RunDir), reason)
	}
	return t.Flush()
}

// viewer looks at runs for a command.
func (e *env) viewer() *runview.Viewer {
	return &runview.Viewer{
		Slurm: e.submitEnv().Slurm, Now: e.Now, From: e.dir(), Out: e.Out, Err: e.Err, Log: e.log(),
	}
}
