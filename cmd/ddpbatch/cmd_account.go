package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"ddpbatch/internal/goodput"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/text"
	"ddpbatch/internal/usage"
)

func newAccountCommand(e *env) *cli.Command {
	return &cli.Command{
		Name:        "account",
		Usage:       "show where the time of all runs went, and which nodes failed",
		Description: example("ddpbatch account", "ddpbatch account --since 30d", "ddpbatch account --runs runs --json"),
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "since",
				Usage: "count only what was within the last `TIME`, such as 30d, 12h or 90m", DefaultText: "all"},
			&cli.StringFlag{Name: "runs", Usage: "only the runs of this `FOLDER`", DefaultText: "all, as status --all"},
			jsonFlag(),
		},
		Action: func(c *cli.Context) error {
			if err := checkWords(c, 0, 0); err != nil {
				return err
			}
			span, err := parseSince(c.String("since"))
			if err != nil {
				return err
			}
			named := statusShown{runs: runsFolder(e, c), all: !c.IsSet("runs")}
			runs, err := named.find(e)
			if err != nil {
				return err
			}
			return account(c.Context, e, runs, span, c.Bool("json"))
		},
	}
}

// parseSince parses an age; 0 means all time.
func parseSince(value string) (span time.Duration, err error) {
	if value == "" {
		return 0, nil
	}
	span, err = text.ParseAge(value)
	if err != nil || span <= 0 {
		return 0, usage.Errorf("--since is %s: give a time such as 30d, 12h or 90m", text.Quoted(value, 40))
	}
	return span, nil
}

func account(ctx context.Context, e *env, runs []*rundir.Dir, span time.Duration, asJSON bool) error {
	s := goodput.Surveyor{Now: e.Now(), Ended: func(open []*rundir.Dir) []bool {
		ended, err := e.viewer().EndedOf(ctx, open)
		if err != nil {
			e.log().Warn("Slurm cannot report which jobs have ended; jobs without a recorded end count as running", "error", err)
		}
		return ended
	}}
	if span > 0 {
		s.From = s.Now.Add(-span)
	}
	found, err := s.Survey(runs)
	if err != nil {
		e.log().Warn("some runs are left out", "error", err)
	}
	if asJSON {
		return printJSON(e, found)
	}
	if found.Total.Runs == 0 && len(found.Nodes) == 0 {
		fmt.Fprintln(e.Err, "no runs in this time")
		return nil
	}
	if err := printJobs(e, found); err != nil {
		return err
	}
	return printFailedNodes(e, found.Nodes)
}

// printJobs prints a row for each job name, and one for all jobs.
func printJobs(e *env, found goodput.Survey) error {
	t := newTable(e, "NAME", "RUNS", "QUEUED", "NODE-HOURS", "STARTING", "PRODUCTIVE", "SAVING", "LOST", "UNKNOWN",
		"OTHER", "GOODPUT", "LOST-TO")
	row := func(name string, s goodput.Summary) {
		share := "-"
		if s.Goodput != nil {
			share = goodput.Percent(*s.Goodput)
		}
		var lost []string
		for _, cause := range s.Causes() {
			lost = append(lost, cause+" "+hours(s.Lost[cause]))
		}
		t.Row(name, strconv.Itoa(s.Runs), text.Span(time.Duration(s.QueuedS*float64(time.Second))), hours(s.Total), hours(s.Starting),
			hours(s.Productive), hours(s.Saving), hours(s.LostHours()), hours(s.Unknown), hours(s.Other), share, strings.Join(lost, ", "))
	}
	for _, job := range found.Jobs {
		row(job.Name, job.Summary)
	}
	row("(all)", found.Total) // not a valid name of a job
	return t.Flush()
}

func hours(h float64) string { return strconv.FormatFloat(h, 'f', 2, 64) }

// printFailedNodes prints an empty line and the nodes whose failures still count.
func printFailedNodes(e *env, nodes []goodput.NodeFailures) error {
	if len(nodes) == 0 {
		return nil
	}
	fmt.Fprintln(e.Out)
	t := newTable(e, "NODE", "FAILURES", "SCORE", "LAST")
	for _, n := range nodes {
		name := n.Node
		if n.Cluster != "" {
			name += " of " + n.Cluster
		}
		t.Row(name, strconv.Itoa(n.Failures), hours(n.Score), n.Last.Local().Format(time.DateTime))
	}
	return t.Flush()
}
