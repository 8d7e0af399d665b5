package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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

	ended bool // it will not go on by itself
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
	rows := []jobStatus{}
	for _, run := range runs {
		row, err := statusOf(ctx, e, run)
		if err != nil {
			return err
		}
		rows = append(rows, row)
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
	id, err := run.JobID()
	if err != nil {
		return jobStatus{}, err
	}
	row := jobStatus{Job: id, Name: run.Spec().Name, RunDir: run.Path()}
	if row.Attempt, err = run.NewestAttempt(); err != nil {
		return row, err
	}
	verdict, verr := run.Verdict(row.Attempt)
	if row.Attempt > 0 && verr == nil {
		row.Exit, row.Message = &verdict.Exit, verdict.Message
	}
	if m, ok, err := run.LastMetrics(); err != nil {
		return row, err
	} else if ok {
		row.Epoch, row.Step, row.Steps, row.Loss = &m.Epoch, &m.Step, &m.Steps, &m.Loss
	}
	return row, row.addState(ctx, e, run)
}

// addState asks Slurm; what Slurm no longer knows, the verdict tells.
func (row *jobStatus) addState(ctx context.Context, e *env, run *rundir.Dir) error {
	if run.Spec().Kind == "slurm" && row.Job != "" {
		client, _ := newSlurmClient(e)
		jobs, err := client.Jobs(ctx, []string{row.Job})
		if err == nil {
			job := newest(jobs)
			row.State, row.Reason, row.ended = job.State, cleanReason(job.Reason), job.Ended()
			return nil
		}
		if !errors.Is(err, slurm.ErrUnknownJob) && !errors.Is(err, slurm.ErrNoSlurm) {
			return err
		}
	}
	row.ended = true
	switch {
	case row.Exit == nil && simulating(run, row.Job):
		row.State, row.ended = "RUNNING", false
	case row.Exit == nil:
		row.State = "UNKNOWN"
	case *row.Exit == 0:
		row.State = "COMPLETED"
	case *row.Exit > 128:
		row.State = "CANCELLED"
	default:
		row.State = "FAILED"
	}
	return nil
}

// newest is what an array of jobs counts as: an element that is not over yet, or else one that
// did not end well, where there is one.
func newest(jobs []slurm.JobStatus) slurm.JobStatus {
	worst := jobs[0]
	for _, job := range jobs {
		switch {
		case !job.Ended():
			return job
		case job.State != "COMPLETED":
			worst = job
		}
	}
	return worst
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
