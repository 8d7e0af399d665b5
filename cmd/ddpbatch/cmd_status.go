package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"ddpbatch/internal/rundir"
	"ddpbatch/internal/runview"
	"ddpbatch/internal/text"
	"ddpbatch/internal/usage"
	"ddpbatch/mpi/launch/recovery"
	"ddpbatch/slurm"
)

func newStatusCommand(e *env) *cli.Command {
	return &cli.Command{
		Name:        "status",
		Usage:       "show jobs: state, attempt, step, loss; all runs here where none is named",
		ArgsUsage:   "[JOB...]",
		Description: example("ddpbatch status", "ddpbatch status 123 --json"),
		Flags: []cli.Flag{
			runDirFlag(), jsonFlag(),
			&cli.StringFlag{Name: "sort", Usage: "of one sweep: sort its elements by `METRIC`, a number in metrics.jsonl; -METRIC turns the order round"},
		},
		Action: func(c *cli.Context) error {
			runs, err := namedRuns(e, runsFolder(e, c), c.Args().Slice())
			if err != nil {
				return err
			}
			if c.IsSet("sort") || len(runs) == 1 && c.Args().Present() {
				if shown, err := sweepStatus(c.Context, e, runs, c.String("sort"), c.Bool("json")); shown || err != nil {
					return err
				}
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

// sweepStatus prints a row for each element of a sweep, which is the one run that is named; it reports whether that run is a sweep.
func sweepStatus(ctx context.Context, e *env, runs []*rundir.Dir, sort string, asJSON bool) (bool, error) {
	notOne := usage.Errorf("--sort is for one sweep: ddpbatch status RUN --sort METRIC")
	if len(runs) != 1 {
		return false, notOne
	}
	if isSweep, err := runview.IsSweep(runs[0]); err != nil || !isSweep {
		if sort != "" && err == nil {
			err = notOne
		}
		return false, err
	}
	row, err := e.viewer().Status(ctx, runs[0])
	if err != nil {
		return false, err
	}
	results, err := row.Results(sort)
	if err != nil {
		return false, err
	}
	if asJSON {
		return true, printJSON(e, []any{struct {
			runview.RunStatus
			Metric   string           `json:"metric_name"`
			Elements []runview.Result `json:"elements"`
		}{row, results.Metric, results.Rows}})
	}
	fmt.Fprintln(e.Err, text.Clean(fmt.Sprintf("%s %s: %s: %s", row.Job, row.Name, row.State, cmp.Or(row.Next, row.Reason, row.Message))))
	heading := []string{"INDEX"}
	for _, column := range results.Columns {
		heading = append(heading, strings.ToUpper(column))
	}
	t := newTable(e, append(heading, "STATE", "ATTEMPT", "STEP", strings.ToUpper(results.Metric), "REASON")...)
	for _, r := range results.Rows {
		cells := []string{strconv.Itoa(r.Index)}
		for _, value := range r.Shown {
			cells = append(cells, text.Shortened(value, 60))
		}
		t.Row(append(cells, r.State, strconv.Itoa(r.Attempt), steps(&r.RunStatus), shortNumber(r.Metric), reasonOf(&r.RunStatus))...)
	}
	return true, t.Flush()
}

// steps says how far a run is, of how many steps.
func steps(r *runview.RunStatus) string {
	if r.Step == nil {
		return "-"
	}
	return fmt.Sprintf("%d/%d", *r.Step, *r.Steps)
}

// shortNumber is a metric in a table.
func shortNumber(x *float64) string {
	if x == nil { // an attempt that first ends an evaluation has no loss yet
		return "-"
	}
	return strconv.FormatFloat(*x, 'g', 4, 64)
}

// reasonOf says what follows, or why nothing does, or how it ended.
func reasonOf(r *runview.RunStatus) string {
	reason := cmp.Or(r.Next, r.Reason, r.Message)
	if r.Cause == string(recovery.Start) && r.Next != "" && r.Message != "" {
		reason += ": " + r.Message // what was not started, and why
	}
	return reason
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
		case named || ctx.Err() != nil || errors.Is(row.Failed, slurm.ErrUnreachable) && row.Cluster == "":
			return row.Failed
		default:
			run := runs[i]
			rows[i] = runview.RunStatus{
				Job: row.Job, Cluster: row.Cluster, Name: run.Spec().Name, State: "UNKNOWN", Reason: row.Failed.Error(), RunDir: run.Path(),
			}
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
		attempt, loss, reason := strconv.Itoa(r.Attempt), shortNumber(r.Loss), reasonOf(&r)
		if r.Links > 0 {
			reason = strings.TrimSuffix(fmt.Sprintf("link %d of %d: %s", r.Link, r.Links, reason), ": ")
		}
		id := slurm.JobID{ID: r.Job, Cluster: r.Cluster}
		t.Row(id.String(), r.Name, r.State, attempt, cmp.Or(r.Cause, "-"), steps(&r), loss, e.short(r.RunDir), reason)
	}
	return t.Flush()
}

// viewer looks at runs for a command.
func (e *env) viewer() *runview.Viewer {
	return &runview.Viewer{
		Slurm: e.submitEnv().Slurm, Now: e.Now, From: e.dir(), Out: e.Out, Err: e.Err, Log: e.log(),
	}
}
