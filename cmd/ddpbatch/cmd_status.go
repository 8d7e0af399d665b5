package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"ddpbatch/internal/rundir"
	"ddpbatch/slurm"
)

// jobStatus is a row of status; its JSON names are a contract (docs/cli.md).
type jobStatus struct {
	Job     string   `json:"job"`
	Name    string   `json:"name"`
	State   string   `json:"state"`
	Reason  string   `json:"reason"`
	Attempt int      `json:"attempt"`
	Epoch   *int     `json:"epoch"`
	Step    *int64   `json:"step"`
	Steps   *int64   `json:"steps"`
	Loss    *float64 `json:"loss"`
	Exit    *int     `json:"exit"`
	Message string   `json:"message"`
	RunDir  string   `json:"run_dir"`

	run   *rundir.Dir
	cause string // of the newest attempt's verdict
	ended bool   // it will not go on by itself
}

func newStatusCommand(e *env) *cli.Command {
	return &cli.Command{
		Name:        "status",
		Usage:       "show jobs: state, attempt, step, loss; all runs here where none is named",
		ArgsUsage:   "[JOB...]",
		Description: example("ddpbatch status", "ddpbatch status 123 --json"),
		Flags:       []cli.Flag{runDirFlag(), jsonFlag()},
		Action: func(c *cli.Context) error {
			runs, err := namedRuns(e, e.abs(c.String("runs")), c.Args().Slice())
			if err != nil {
				return err
			}
			return runStatus(c.Context, e, runs, c.Bool("json"))
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
		run, _, err := findJob(e, parent, name)
		if err != nil {
			return nil, err
		}
		runs = append(runs, run)
	}
	return runs, nil
}

func runStatus(ctx context.Context, e *env, runs []*rundir.Dir, asJSON bool) error {
	rows, err := statusesOf(ctx, e, runs)
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(e, rows)
	}
	if len(rows) == 0 {
		fmt.Fprintln(e.Err, "no runs here")
		return nil
	}
	t := newTable(e, "JOB", "NAME", "STATE", "ATTEMPT", "STEP", "LOSS", "RUN", "REASON")
	for _, r := range rows {
		step, loss := "-", "-"
		if r.Step != nil {
			step = fmt.Sprintf("%d/%d", *r.Step, *r.Steps)
			loss = strconv.FormatFloat(*r.Loss, 'g', 4, 64)
		}
		reason := r.Reason
		if reason == "" {
			reason = r.Message
		}
		t.row(r.Job, r.Name, r.State, strconv.Itoa(r.Attempt), step, loss, e.short(r.RunDir), reason)
	}
	return t.flush()
}

// statusOf puts together what Slurm and the run directory know of a run.
func statusOf(ctx context.Context, e *env, run *rundir.Dir) (jobStatus, error) {
	rows, err := statusesOf(ctx, e, []*rundir.Dir{run})
	if err != nil {
		return jobStatus{}, err
	}
	return rows[0], nil
}

// statusesOf is statusOf for several runs; Slurm is asked once for all of them.
func statusesOf(ctx context.Context, e *env, runs []*rundir.Dir) ([]jobStatus, error) {
	rows := make([]jobStatus, len(runs))
	var ids []string
	for i, run := range runs {
		if err := rows[i].readRun(run); err != nil {
			return nil, err
		}
		if rows[i].submitted() {
			ids = append(ids, rows[i].Job)
		}
	}
	jobs, err := askSlurm(ctx, e, ids)
	if err != nil {
		return nil, err
	}
	for i := range rows {
		rows[i].addState(jobs)
	}
	return rows, nil
}

// askSlurm tells what Slurm knows of jobs; those that it knows no longer are left out.
func askSlurm(ctx context.Context, e *env, ids []string) ([]slurm.JobStatus, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	client, _ := newSlurmClient(e)
	jobs, err := client.Jobs(ctx, ids)
	if errors.Is(err, slurm.ErrUnknownJob) || errors.Is(err, slurm.ErrNoSlurm) {
		err = nil
	}
	return jobs, err
}

// readRun takes from the run directory all but the state.
func (row *jobStatus) readRun(run *rundir.Dir) (err error) {
	*row = jobStatus{Name: run.Spec().Name, RunDir: run.Path(), run: run}
	if row.Job, err = run.JobID(); err != nil {
		return err
	}
	if row.Attempt, err = run.NewestAttempt(); err != nil {
		return err
	}
	if v, err := run.Verdict(row.Attempt); row.Attempt > 0 && err == nil {
		row.Exit, row.Message, row.cause = &v.Exit, v.Message, v.Cause
	}
	m, ok, err := run.LastMetrics()
	if ok {
		row.Epoch, row.Step, row.Steps, row.Loss = &m.Epoch, &m.Step, &m.Steps, &m.Loss
	}
	return err
}

func (row *jobStatus) submitted() bool { return row.run.Spec().Kind == "slurm" && row.Job != "" }

// addState takes Slurm's word; of a job that Slurm does not know any more, the verdict tells. A job of
// another name is not this run's: a rebuilt cluster counts from 1 again.
func (row *jobStatus) addState(jobs []slurm.JobStatus) {
	if row.submitted() {
		ours := slices.DeleteFunc(slices.Clone(jobs), func(j slurm.JobStatus) bool { return !j.Of(row.Job) || j.Name != row.Name })
		if len(ours) > 0 {
			job := worst(ours)
			row.State, row.Reason, row.ended = job.State, cleanReason(job.Reason), job.Ended()
			return
		}
	}
	row.ended = true
	switch {
	case row.Exit == nil && simulating(row.run, row.Job):
		row.State, row.ended = "RUNNING", false
	case row.Exit == nil:
		row.State = "UNKNOWN"
	case *row.Exit == 0:
		row.State = "COMPLETED"
	case row.cause == "cancelled":
		row.State = "CANCELLED"
	default:
		row.State = "FAILED"
	}
}

// worst is what an array of jobs counts as: an element that is not over yet, or else one that
// did not end well, where there is one.
func worst(jobs []slurm.JobStatus) slurm.JobStatus {
	found := jobs[0]
	for _, job := range jobs {
		switch {
		case !job.Ended():
			return job
		case job.State != "COMPLETED":
			found = job
		}
	}
	return found
}

func cleanReason(reason string) string {
	if strings.EqualFold(reason, "none") {
		return ""
	}
	return reason
}

// simulating tells whether the process that simulates run still lives: its pretend job id is its pid.
func simulating(run *rundir.Dir, id string) bool {
	if run.Spec().Kind != "simulate" {
		return false
	}
	target, err := os.Readlink(filepath.Join("/proc", id, "exe"))
	return err == nil && strings.Contains(filepath.Base(target), "ddpbatch")
}
