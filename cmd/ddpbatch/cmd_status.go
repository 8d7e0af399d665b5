package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"ddpbatch/internal/rundir"
	"ddpbatch/mpi/launch/recovery"
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

	Cause    string `json:"cause"`    // of the newest attempt's end; empty where it has not ended
	Restarts int    `json:"restarts"` // of the workers, within the run's jobs
	Requeues int    `json:"requeues"`
	Next     string `json:"next"` // what follows, or why nothing does; empty while an attempt runs

	run        *rundir.Dir
	failed     error  // why the run could not be read
	ended      bool   // it will not go on by itself
	saved      bool   // the newest attempt did, before it ended
	cancelled  bool   // by a person, before it began
	simulated  bool   // by a process that lives
	unbegun    bool   // an element, as the job that it is part of now
	waits      bool   // its newest job has not begun an attempt
	givenUp    bool   // so that a wish to be started again is not granted
	verdictJob string // the job whose end Exit, Message and Cause tell

	cutShort *submission // of which nobody recorded what came of it; nil: there is none
	array    *arrayJobs  // nil: it is no array
	elements []jobStatus // of an array
	index    int         // of an element
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
		run, _, err := findJob(e, parent, name)
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
	rows, err := statusesOf(ctx, e, runs)
	if err != nil {
		return err
	}
	for i, row := range rows {
		switch {
		case row.failed == nil:
		case named || ctx.Err() != nil || errors.Is(row.failed, slurm.ErrUnreachable):
			return row.failed
		default:
			run := runs[i]
			rows[i] = jobStatus{Job: row.Job, Name: run.Spec().Name, State: "UNKNOWN", Reason: row.failed.Error(), RunDir: run.Path(), run: run}
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
		t.row(r.Job, r.Name, r.State, strconv.Itoa(r.Attempt), cmp.Or(r.Cause, "-"), step, loss, e.short(r.RunDir), reason)
	}
	return t.flush()
}

// statusOf puts together what Slurm and the run directory know of a run.
func statusOf(ctx context.Context, e *env, run *rundir.Dir) (jobStatus, error) {
	rows, err := statusesOf(ctx, e, []*rundir.Dir{run})
	if err == nil {
		err = rows[0].failed
	}
	if err != nil {
		return jobStatus{}, err
	}
	return rows[0], nil
}

// statusesOf is statusOf for several runs; Slurm is asked once for all of them, and once more for the jobs of submissions that nobody
// recorded. It is asked before their directories are read, as what a job leaves is there before Slurm calls it ended.
func statusesOf(ctx context.Context, e *env, runs []*rundir.Dir) ([]jobStatus, error) {
	rows := make([]jobStatus, len(runs))
	var ids, others []string // others: of other users' runs
	jobsOf := askUserJobs(e)
	for i, run := range runs {
		failed := rows[i].identify(run)
		if failed == nil {
			failed = rows[i].lookForLost(ctx, jobsOf)
		}
		rows[i].failed = failed
		switch {
		case failed != nil || !rows[i].submitted():
		case !run.IsOwn():
			others = append(others, rows[i].ids()...)
		default:
			ids = append(ids, rows[i].ids()...)
		}
	}
	jobs, err := askSlurm(ctx, e, slices.Concat(ids, others))
	if err != nil && len(others) > 0 && ctx.Err() == nil {
		// other users' runs may name what no Slurm takes for a job or a cluster
		for i := range rows {
			if rows[i].failed == nil && rows[i].submitted() && !runs[i].IsOwn() {
				rows[i].failed = err
			}
		}
		jobs, err = askSlurm(ctx, e, ids)
	}
	if err != nil {
		return nil, err
	}
	for i := range rows {
		if rows[i].failed == nil {
			rows[i].failed = rows[i].read(jobs)
		}
	}
	return rows, nil
}

// ids are the jobs that Slurm is asked about for the run.
func (row *jobStatus) ids() []string {
	if row.array != nil {
		return row.array.ids()
	}
	return []string{row.Job}
}

// identify tells which job, or jobs, a run is.
func (row *jobStatus) identify(run *rundir.Dir) error {
	id, err := newestJob(run)
	if err != nil {
		return err
	}
	*row = jobStatus{Job: id, run: run}
	array, err := arrayIn(run)
	if err != nil || array == nil {
		return err
	}
	jobs, err := array.jobs(run)
	row.array = &jobs
	return err
}

// read puts together what Slurm has told of jobs and what the run that row identifies has left.
func (row *jobStatus) read(jobs []slurm.JobStatus) error {
	array, cutShort := row.array, row.cutShort
	if err := row.readRun(row.run, row.Job); err != nil {
		return err
	}
	defer row.addCutShort(cutShort)
	if array == nil {
		row.addState(jobs)
		return nil
	}
	row.array = array
	if err := row.readElements(); err != nil {
		return err
	}
	row.addElements(jobs)
	return nil
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

// readRun takes from the run directory all but the state; id is its newest job.
func (row *jobStatus) readRun(run *rundir.Dir, id string) (err error) {
	*row = jobStatus{Job: id, Name: run.Spec().Name, RunDir: run.Path(), run: run}
	row.simulated = simulating(run, id) // before the rest: how that ends is in the directory
	if row.Attempt, err = run.NewestAttempt(); err != nil {
		return err
	}
	if v, err := run.Verdict(row.Attempt); row.Attempt > 0 && err == nil {
		row.Exit, row.Message, row.saved, row.verdictJob = &v.Exit, v.Message, v.Saved, v.JobID
		row.Cause = string(recovery.Cause(v.Cause).Current())
	}
	row.readLedger(run)
	m, ok, err := run.LastMetrics()
	if ok {
		row.Epoch, row.Step, row.Steps, row.Loss = &m.Epoch, &m.Step, &m.Steps, m.Loss
	}
	return err
}

// readLedger takes what the run has been through from its ledger. A ledger that cannot be read is not worth a failure here.
func (row *jobStatus) readLedger(run *rundir.Dir) {
	history, err := run.Ledger()
	if err != nil {
		return
	}
	begun := ""
	for _, event := range history {
		switch event.Event {
		case rundir.EventRestart:
			row.Restarts++
		case rundir.EventRequeue:
			row.Requeues++
			row.Next = "starts again: " + event.Detail
		case rundir.EventRefused:
			row.Requeues--
			row.Next = "Slurm did not requeue it: " + event.Detail
		case rundir.EventGiveUp:
			row.Next = "not started again: " + event.Detail
			row.givenUp = event.Detail != ownDeadline && event.Detail != killedAtLimit
		case rundir.EventBegin:
			row.Next, row.givenUp, begun, row.waits = "", false, event.Job, false
		case rundir.EventSubmit, rundir.EventResume:
			row.Next, row.givenUp = "", false
			id, ok := event.SubmittedJob()
			row.waits = ok && id != wholeID(begun) && !isArray(run) // of an array its elements' ledgers tell
		}
	}
	if row.isElement() && begun != row.Job { // the array was resumed, and its ledger tells
		row.Next, row.unbegun = "", true
		row.cancelled = cancelledBefore(history, row.Job)
	}
}

func (row *jobStatus) isElement() bool { return strings.Contains(row.Job, "_") }

func (row *jobStatus) submitted() bool { return row.run.Spec().Kind == "slurm" && row.Job != "" }

// addState takes Slurm's word; of a job that Slurm does not know any more, the verdict tells.
func (row *jobStatus) addState(jobs []slurm.JobStatus) {
	if ours := row.partsIn(jobs); row.submitted() && len(ours) > 0 {
		row.takeState(worst(ours))
		return
	}
	row.ended = true
	switch {
	case row.simulated: // between two attempts, too
		row.State, row.ended = "RUNNING", false
	case row.cancelled || row.dropped(jobs): // of an array that goes on, Slurm forgets it at once
		row.State, row.cancelled = "CANCELLED", true
	case row.Exit == nil:
		row.State = "UNKNOWN"
	default:
		row.State = stateOf(*row.Exit, row.saved, recovery.Cause(row.Cause))
	}
}

// finished tells whether the run has done what it was to do.
func (row *jobStatus) finished() bool {
	if row.Attempt == 0 || row.Exit == nil || *row.Exit != 0 || row.waits || row.unbegun {
		return false
	}
	trial := row.run.Spec().Before // of a resume --set that no attempt has run with
	if trial == nil || trial.Element == nil {
		return trial == nil
	}
	index, isElement := row.run.Index()
	return !isElement || index != *trial.Element
}

// takeState takes the state of what Slurm knows of the job. Where that has not begun, what the attempt before left is not its end.
func (row *jobStatus) takeState(job slurm.JobStatus) {
	if row.waits || row.unbegun {
		row.Exit, row.Cause, row.Message, row.saved = nil, "", "", false
	}
	row.State, row.Reason, row.ended = job.State, cleanReason(job.Reason), job.Ended()
	if row.ended && row.Next == "" {
		row.Next = row.silence()
	}
}

// partsIn are those of jobs that are this one. A job of another name is not this run's: a rebuilt cluster counts from 1 again.
func (row *jobStatus) partsIn(jobs []slurm.JobStatus) (ours []slurm.JobStatus) {
	array, _, isElement := strings.Cut(row.Job, "_")
	var rest []slurm.JobStatus
	for _, job := range jobs {
		switch {
		case job.Name != row.Name:
		case job.Of(row.Job):
			ours = append(ours, job)
		case isElement && job.ID == array: // of an array that was cancelled, all that had not begun
			rest = append(rest, job)
		}
	}
	if len(ours) == 0 {
		return rest
	}
	return ours
}

// stateOf is what Slurm would call the end of a job that it knows nothing of; SAVED is ours, for one that stopped in time and waits to be
// resumed.
func stateOf(exit int, saved bool, cause recovery.Cause) string {
	switch {
	case exit == 0:
		return "COMPLETED"
	case cause == recovery.Cancelled:
		return "CANCELLED"
	case cause == recovery.Preempt:
		return "PREEMPTED"
	case cause == recovery.Timeout && exit != exitTimeout:
		return "TIMEOUT"
	case exit == exitRequeue && saved:
		return "SAVED"
	case cause == recovery.Node || cause == recovery.AgentLost:
		return "NODE_FAIL"
	case cause == recovery.OOM:
		return "OUT_OF_MEMORY"
	}
	return "FAILED"
}

// worst is what a job of several parts counts as: a part that is not over yet, or else one that
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
