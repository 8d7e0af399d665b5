package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"ddpbatch/internal/goodput"
	"ddpbatch/internal/pause"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/runindex"
	"ddpbatch/internal/runview"
	"ddpbatch/internal/text"
	"ddpbatch/internal/usage"
	"ddpbatch/slurm"
)

func newStatusCommand(e *env) *cli.Command {
	return &cli.Command{
		Name:        "status",
		Usage:       "show jobs: state, attempt, step, loss; by default all runs here",
		ArgsUsage:   "[JOB...]",
		Description: example("ddpbatch status", "ddpbatch status 123 --watch", "ddpbatch status 123 --json"),
		Flags: []cli.Flag{
			runDirFlag(), jsonFlag(),
			&cli.StringFlag{Name: "sort",
				Usage: "for one array or sweep: sort its elements by `METRIC`, a number in metrics.jsonl; -METRIC reverses the order"},
			&cli.BoolFlag{Name: "all", Aliases: []string{"a"},
				Usage: "all runs that you have submitted, wherever they are, and those of the folder"},
			&cli.BoolFlag{Name: "watch", Aliases: []string{"w"},
				Usage: "on a terminal: refresh every 10 s, until all shown jobs have ended"},
		},
		Action: func(c *cli.Context) error {
			s := statusShown{
				runs: runsFolder(e, c), names: c.Args().Slice(), all: c.Bool("all"), sort: c.String("sort"), sorts: c.IsSet("sort"),
				asJSON:   c.Bool("json"),
				accounts: new(goodput.Accounts),
			}
			if s.all && len(s.names) > 0 {
				return usage.Errorf("--all shows all runs: leave %s out, or --all", text.Quoted(s.names[0], 60))
			}
			if c.Bool("watch") {
				return watchStatus(c.Context, e, s)
			}
			_, err := s.show(c.Context, e)
			return err
		},
	}
}

// statusShown says what status shows.
type statusShown struct {
	runs   string   // the directory
	names  []string // of runs in it; empty: all
	all    bool     // also those of the user's index
	sort   string
	sorts  bool // --sort was given
	asJSON bool

	accounts *goodput.Accounts // of where the time of a single run went
}

// show prints it once, and reports whether a job of it is still running.
func (s statusShown) show(ctx context.Context, e *env) (goesOn bool, err error) {
	if len(s.names) == 1 && !s.sorts {
		if array, index, waits := e.viewer().WaitingElement(s.runs, s.names[0]); waits {
			row, err := e.viewer().ElementStatus(ctx, array, index)
			if err != nil {
				return false, err
			}
			return !row.Ended, s.print(e, []*rundir.Dir{array}, []runview.RunStatus{row})
		}
	}
	runs, err := s.find(e)
	if err != nil {
		return false, err
	}
	if s.sorts || len(runs) == 1 && len(s.names) > 0 {
		if shown, goesOn, err := s.elements(ctx, e, runs); shown || err != nil {
			return goesOn, err
		}
	}
	return s.table(ctx, e, runs)
}

// find opens the runs to show.
func (s statusShown) find(e *env) ([]*rundir.Dir, error) {
	runs, err := namedRuns(e, s.runs, s.names)
	if err != nil || !s.all {
		return runs, err
	}
	indexed, err := e.index().Runs(e.Now())
	here := map[string]bool{}
	for _, run := range runs {
		here[run.Path()] = true
	}
	for _, run := range indexed {
		if !here[run.Path()] {
			runs = append(runs, run)
		}
	}
	rundir.SortNewest(runs)
	return runs, err
}

// namedRuns opens the named runs, or all below parent if none is named.
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

// elements prints a row for each element if the only named run is an array. shown reports whether it is.
func (s statusShown) elements(ctx context.Context, e *env, runs []*rundir.Dir) (shown, goesOn bool, err error) {
	notOne := usage.Errorf("--sort is for one array or sweep: ddpbatch status RUN --sort METRIC")
	if len(runs) != 1 {
		return false, false, notOne
	}
	if isArray, err := runview.HasElements(runs[0]); err != nil || !isArray {
		if s.sorts && err == nil {
			err = notOne
		}
		return false, false, err
	}
	row, err := e.viewer().Status(ctx, runs[0])
	if err != nil {
		return false, false, err
	}
	results, err := row.Results(s.sort)
	if err != nil {
		return false, false, err
	}
	row.AddGoodput(s.accounts, e.Now())
	if s.asJSON {
		return true, !row.Ended, printJSON(e, []any{struct {
			runview.RunStatus
			Metric   string           `json:"metric_name"`
			Elements []runview.Result `json:"elements"`
		}{row, results.Metric, results.Rows}})
	}
	fmt.Fprintln(e.Err, text.Clean(fmt.Sprintf("%s %s: %s: %s", shownArray(runs[0], &row), row.Name, row.State,
		cmp.Or(row.Next, row.Reason, row.Message))))
	heading := []string{"INDEX"}
	for _, column := range results.Columns {
		heading = append(heading, strings.ToUpper(column))
	}
	t := newTable(e, append(heading, "STATE", "ATTEMPT", "STEP", strings.ToUpper(results.Metric), "REASON")...)
	for _, r := range results.Rows {
		cells := []string{strconv.Itoa(r.Index)}
		if r.Index < 0 { // elements that only Slurm knows: "12_[4-6%2]"
			_, cells[0], _ = strings.Cut(r.Job, "_")
		}
		for _, value := range r.Shown {
			cells = append(cells, text.Shortened(value, 60))
		}
		t.Row(append(cells, r.State, strconv.Itoa(r.Attempt), steps(&r.RunStatus), shortNumber(r.Metric), r.Why())...)
	}
	return true, !row.Ended, flushWithGoodput(e, t, &row)
}

// flushWithGoodput prints a table of one run, and where the run's time went.
func flushWithGoodput(e *env, t *text.Table, row *runview.RunStatus) error {
	if row.Goodput != nil && row.Goodput.Total() > 0 {
		defer fmt.Fprintln(e.Err, row.Goodput)
	}
	return t.Flush()
}

// steps formats how far a run is, and the number of all steps if that is known.
func steps(r *runview.RunStatus) string {
	switch {
	case r.Step == nil:
		return "-"
	case r.Steps == nil:
		return strconv.FormatInt(*r.Step, 10)
	}
	return fmt.Sprintf("%d/%d", *r.Step, *r.Steps)
}

// shortNumber formats a metric for a table.
func shortNumber(x *float64) string {
	if x == nil { // an attempt may end an evaluation before it has a loss
		return "-"
	}
	return strconv.FormatFloat(*x, 'g', 4, 64)
}

// table prints a row for each run. A run that cannot be read is an error if the user named it. Otherwise it gets a row with the reason, so
// that a run of another user cannot hide the others.
func (s statusShown) table(ctx context.Context, e *env, runs []*rundir.Dir) (goesOn bool, err error) {
	rows, err := e.viewer().Statuses(ctx, runs)
	if err != nil {
		return false, err
	}
	for i, row := range rows {
		goesOn = goesOn || row.Failed == nil && !row.Ended
		switch {
		case row.Failed == nil:
		case len(s.names) > 0 || ctx.Err() != nil || errors.Is(row.Failed, slurm.ErrUnreachable) && row.Cluster == "":
			return false, row.Failed
		default:
			run := runs[i]
			rows[i] = runview.RunStatus{
				Job: row.Job, Cluster: row.Cluster, Name: run.Spec().Name, State: "UNKNOWN", Reason: row.Failed.Error(), RunDir: run.Path(),
			}
		}
	}
	if len(rows) == 1 && len(s.names) > 0 {
		rows[0].AddGoodput(s.accounts, e.Now())
	}
	return goesOn, s.print(e, runs, rows)
}

// print prints the rows of runs. If the first row has a goodput, it also prints where that run's time went.
func (s statusShown) print(e *env, runs []*rundir.Dir, rows []runview.RunStatus) error {
	if s.asJSON {
		return printJSON(e, rows)
	}
	if len(rows) == 0 {
		fmt.Fprintln(e.Err, "no runs here")
		return nil
	}
	now := e.Now()
	t := newTable(e, "JOB", "NAME", "STATE", "ATTEMPT", "RESTARTS", "CAUSE", "STEP", "LOSS", "SAMPLES/S", "SAVED", "LEFT", "RUN", "REASON")
	for i, r := range rows {
		reason := r.Why()
		if r.Links > 0 {
			reason = strings.TrimSuffix(fmt.Sprintf("link %d of %d: %s", r.Link, r.Links, reason), ": ")
		}
		t.Row(
			shownJob(runs[i], r.Job, r.Cluster), r.Name, r.State, strconv.Itoa(r.Attempt),
			strconv.Itoa(r.Restarts+r.Requeues),
			cmp.Or(r.Cause, "-"), steps(&r), shortNumber(r.Loss), shortNumber(r.Speed), between(r.Saved, &now), between(&now, r.Ends),
			e.short(r.RunDir), reason,
		)
	}
	return flushWithGoodput(e, t, &rows[0])
}

// shownJob formats the job of a run for a table. A simulated run has no job: its id is only the process that simulated it.
func shownJob(run *rundir.Dir, id, cluster string) string {
	if run.Spec().Kind == "simulate" {
		return "simulated"
	}
	return slurm.JobID{ID: id, Cluster: cluster}.String()
}

// shownArray formats the job of a whole array for its heading, and the newest job if only some elements were resumed as that.
func shownArray(run *rundir.Dir, row *runview.RunStatus) string {
	id := row.ArrayJob()
	if shown := shownJob(run, id, ""); id == row.Job || shown != id {
		return shown
	}
	return fmt.Sprintf("%s (newest job: %s)", id, row.Job)
}

// between formats the time between two moments, or "-" if one of them is not known.
func between(from, to *time.Time) string {
	if from == nil || to == nil {
		return "-"
	}
	return text.Span(to.Sub(*from))
}

const (
	watchPause  = 10 * time.Second // each time a question to Slurm
	clearScreen = "\x1b[H\x1b[2J"  // ECMA-48: cursor position, erase in page
)

// watchStatus shows it again until no job of it runs. A later failure, for example of a question to Slurm, is shown in its place.
func watchStatus(ctx context.Context, e *env, s statusShown) error {
	if _, isTerminal := e.Terminal(e.Out); !isTerminal || s.asJSON {
		return usage.Errorf("--watch draws a table on a terminal, without --json")
	}
	for first := true; ; first = false {
		var drawn bytes.Buffer
		frame := *e
		frame.Out, frame.Err = &drawn, &drawn
		frame.Terminal = func(io.Writer) (int, bool) { return e.Terminal(e.Out) }
		goesOn, err := s.show(ctx, &frame)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && first:
			return err
		case err != nil:
			goesOn = true
			fmt.Fprintln(&drawn, text.Clean(err.Error()))
		}
		fmt.Fprintf(e.Out, "%s%s\n%s", clearScreen, e.Now().Format(time.DateTime), drawn.Bytes())
		if !goesOn {
			return nil
		}
		if err := pause.For(ctx, watchPause); err != nil {
			return err
		}
	}
}

// index returns the user's index of runs.
func (e *env) index() runindex.Index { return runindex.Folder(e.lookup) }

// indexRun adds a submitted run to the user's index. A failure is only a warning.
func (e *env) indexRun(run *rundir.Dir) {
	if err := e.index().Add(run); err != nil {
		e.log().Warn("status --all will not show this run", "error", err)
	}
}

// viewer returns a Viewer for a command.
func (e *env) viewer() *runview.Viewer {
	return &runview.Viewer{
		Slurm: e.submitEnv().Slurm, Now: e.Now, From: e.dir(), Out: e.Out, Err: e.Err, Log: e.log(),
		Elsewhere: func() []*rundir.Dir {
			runs, _ := e.index().Runs(e.Now()) // it only completes a message
			return runs
		},
	}
}
