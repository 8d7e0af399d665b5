package runview

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/each"
	"ddpbatch/internal/goodput"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/submission"
	"ddpbatch/internal/text"
	"ddpbatch/slurm"
)

// Viewer reads runs and shows them.
type Viewer struct {
	Slurm     *slurm.Client
	Now       func() time.Time
	From      text.Dir  // the user's directory: paths are shown relative to it
	Out, Err  io.Writer // logs, and messages about them
	Log       *slog.Logger
	Elsewhere func() []*rundir.Dir // the user's runs in all folders; may be nil
}

// RunStatus is a row of status. Its JSON names are a contract (docs/cli/status.md).
type RunStatus struct {
	Job     string   `json:"job"`
	Name    string   `json:"name"`
	State   string   `json:"state"`
	Reason  string   `json:"reason"`
	Attempt int      `json:"attempt"`
	Epoch   *int     `json:"epoch"`
	Step    *int64   `json:"step"`
	Steps   *int64   `json:"steps"`
	Loss    *float64 `json:"loss"`
	Speed   *float64 `json:"samples_per_s"` // of all ranks; nil if they do not run or have not reported it
	Exit    *int     `json:"exit"`
	Message string   `json:"message"`
	RunDir  string   `json:"run_dir"`
	Cluster string   `json:"cluster,omitempty"` // of Job; empty: the default cluster

	Stragglers []rundir.Straggler `json:"stragglers"` // slow ranks, while they run; nil if none or not known

	Saved *time.Time `json:"saved"` // when a checkpoint was last saved; nil: never
	Ends  *time.Time `json:"ends"`  // when its time limit ends the running job; nil if no job runs or that is not known

	Cause    string `json:"cause"`    // of the newest attempt's end; empty if it has not ended
	Error    string `json:"error"`    // the error of the rank that failed first; may be empty
	Class    string `json:"class"`    // where the cause lies: "program", "infrastructure"; empty: not known
	Advice   string `json:"advice"`   // what the user can do about it
	Restarts int    `json:"restarts"` // of the workers, within the run's jobs
	Requeues int    `json:"requeues"`
	Next     string `json:"next"` // what follows, or why nothing does; empty while an attempt runs

	Link  int `json:"link"`  // which link of a chain Job is, from 1; 0: it is not a chain
	Links int `json:"links"` // how many links the chain was to have

	Goodput *goodput.Breakdown `json:"goodput,omitempty"` // where the run's time went; set by AddGoodput

	run        *rundir.Dir
	Failed     error  `json:"-"` // why the run could not be read
	Ended      bool   `json:"-"` // it will not continue by itself
	saved      bool   // the newest attempt saved before it ended
	cancelled  bool   // by a user, before it began, or before it began again after a requeue
	Simulated  bool   `json:"-"` // by a process that is alive
	unbegun    bool   // an element that has not begun in its present job
	waits      bool   // its newest job has not begun an attempt
	requeued   bool   // its job has not begun an attempt since it was requeued
	unasked    bool   // Slurm's commands are not installed here
	before     string // why the attempt before the newest ended; empty: not known
	givenUp    bool   // so that a request to be restarted is not granted
	Expected   bool   `json:"-"` // according to its ledger, Slurm will start a job of it, or of an element
	Reported   bool   `json:"-"` // Slurm has reported its state
	VerdictJob string `json:"-"` // the job whose end Exit, Message and Cause describe

	cutShort *submission.Submission // the submission whose outcome is not recorded; nil: there is none
	array    *arrayJobs             // nil if it is not an array
	chain    *chain                 // nil if it is one job or an array
	open     []slurm.JobStatus      // the links of the chain that have not ended
	elements []RunStatus            // the elements of an array
	index    int                    // the index of an element
}

// Status combines what Slurm and the run directory know of a run.
func (v *Viewer) Status(ctx context.Context, run *rundir.Dir) (RunStatus, error) {
	rows, err := v.Statuses(ctx, []*rundir.Dir{run})
	if err == nil {
		err = rows[0].Failed
	}
	if err != nil {
		return RunStatus{}, err
	}
	return rows[0], nil
}

// Statuses is Status for several runs. Each cluster is asked once for all of them, and once more for the jobs of submissions that were not
// recorded. It is asked before the directories are read, because a job's files are complete before Slurm considers it ended.
func (v *Viewer) Statuses(ctx context.Context, runs []*rundir.Dir) ([]RunStatus, error) {
	rows := make([]RunStatus, len(runs))
	questions := map[string]*question{} // by cluster
	jobsOf := submission.AskUserJobs(v.Slurm)
	each.Index(len(runs), func(i int) {
		failed := rows[i].identify(runs[i])
		if failed == nil {
			failed = rows[i].lookForLost(ctx, jobsOf)
		}
		rows[i].Failed = failed
	})
	for i, run := range runs {
		q := questions[rows[i].Cluster]
		if q == nil {
			q = &question{}
			questions[rows[i].Cluster] = q
		}
		switch {
		case rows[i].Failed != nil || !rows[i].submitted():
		case !run.IsOwn():
			q.others = append(q.others, rows[i].ids()...)
		default:
			q.ids = append(q.ids, rows[i].ids()...)
		}
	}
	for cluster, q := range questions {
		v.ask(ctx, cluster, q)
		if q.err != nil && (cluster == "" || ctx.Err() != nil) {
			return nil, q.err
		}
	}
	each.Index(len(runs), func(i int) {
		q := questions[rows[i].Cluster]
		if rows[i].Failed == nil && rows[i].submitted() {
			rows[i].Failed = q.err
			if !runs[i].IsOwn() {
				rows[i].Failed = q.othersErr
			}
		}
		if rows[i].Failed == nil {
			rows[i].Failed = v.read(&rows[i], q)
		}
	})
	return rows, nil
}

// question holds what one cluster is asked, and its answer.
type question struct {
	ids, others    []string // others: jobs of other users' runs
	jobs           []slurm.JobStatus
	err, othersErr error
	noSlurm        bool // its commands are not installed here
}

func (v *Viewer) ask(ctx context.Context, cluster string, q *question) {
	q.jobs, q.err = v.askJobs(ctx, cluster, slices.Concat(q.ids, q.others))
	if q.noSlurm = errors.Is(q.err, slurm.ErrNoSlurm); q.noSlurm {
		q.err = nil
	}
	q.othersErr = q.err
	if q.err != nil && len(q.others) > 0 && ctx.Err() == nil {
		// other users' runs may record anything as a job or a cluster
		q.jobs, q.err = v.Jobs(ctx, cluster, q.ids)
	}
}

// ids returns the jobs that Slurm is asked about for the run.
func (row *RunStatus) ids() []string {
	switch {
	case row.array != nil:
		return row.array.ids()
	case row.chain != nil:
		return row.chain.left()
	}
	return []string{row.Job}
}

// identify finds out which job, or jobs, a run is.
func (row *RunStatus) identify(run *rundir.Dir) error {
	id, err := NewestJob(run)
	if err != nil {
		return err
	}
	*row = RunStatus{Job: id, Cluster: run.Cluster(), run: run, chain: chainOf(run)}
	array, err := arrayIn(run)
	if err != nil || array == nil {
		return err
	}
	jobs, err := array.jobs(run)
	row.array = &jobs
	return err
}

// lookForLost finds a job that a killed command could not record. It writes nothing, because a reader may not be permitted to write.
func (row *RunStatus) lookForLost(ctx context.Context, jobsOf submission.UserJobs) error {
	s, err := submission.Newest(ctx, row.run, false, jobsOf)
	if row.chain != nil && err == nil {
		row.chain.short = s.Chain && s.By == nil
	}
	if err != nil || s.Open == nil {
		return err
	}
	row.cutShort = s
	row.chain = row.chain.addLost(s)
	if s.Job != "" {
		row.Cluster = s.Cluster
	}
	index, isElement := row.run.Index()
	only := s.Open.Indices()
	switch {
	case s.Job == "":
		if errors.Is(s.Asked, slurm.ErrNoSlurm) {
			return nil
		}
		return s.Asked
	case row.array != nil && only != nil:
		for _, index := range only {
			row.array.some[index] = s.Job
		}
		row.array.known = append(row.array.known, s.Job)
	case row.array != nil:
		row.array.whole, row.array.some = s.Job, map[int]string{}
		row.array.known = append(row.array.known, s.Job)
	case isElement && (only == nil || slices.Contains(only, index)):
		row.Job = fmt.Sprintf("%s_%d", s.Job, row.run.SlurmIndex(index))
	case !isElement:
		row.Job = s.Job
	}
	return nil
}

// read combines what Slurm knows of jobs with the files of the run that row identifies.
func (v *Viewer) read(row *RunStatus, q *question) error {
	array, chain, cutShort, cluster, jobs := row.array, row.chain, row.cutShort, row.Cluster, q.jobs
	if err := v.readRun(row, row.run, row.Job); err != nil {
		return err
	}
	defer row.addCutShort(cutShort)
	row.chain, row.Cluster, row.unasked = chain, cluster, q.noSlurm
	if chain != nil {
		row.takeLink(jobs)
	}
	if array == nil {
		row.addState(jobs)
		return nil
	}
	row.array = array
	if err := v.readElements(row); err != nil {
		return err
	}
	row.addElements(jobs)
	return nil
}

// readRun takes everything but the state from the run directory. id is its newest job.
func (v *Viewer) readRun(row *RunStatus, run *rundir.Dir, id string) (err error) {
	*row = RunStatus{Job: id, Name: run.Spec().Name, RunDir: run.Path(), Cluster: run.Cluster(), run: run}
	row.Simulated = simulating(run, id) // before the rest: the end of the simulation is recorded in the directory
	if row.Attempt, err = run.NewestAttempt(); err != nil {
		return err
	}
	if verdict, err := run.Verdict(row.Attempt); row.Attempt > 0 && err == nil {
		row.Exit, row.Message, row.saved, row.VerdictJob = &verdict.Exit, verdict.Message, verdict.Saved, verdict.JobID
		row.Cause = verdict.Cause
		row.Error, row.Class, row.Advice = verdict.Error, verdict.Class, verdict.Advice
	}
	row.readLedger(run)
	if index, isElement := run.Index(); isElement {
		row.addWaits(index)
	}
	if saved, err := checkpoint.LastSaved(run.CheckpointsPath()); err == nil && !saved.IsZero() { // listing them reports an error
		row.Saved = &saved
	}
	if row.Exit == nil {
		if last, err := run.StepTimes(1); err == nil && len(last) > 0 && last[0].Attempt == row.Attempt && last[0].IsFresh(v.Now()) {
			row.Stragglers = last[0].Stragglers
		}
	}
	m, ok, err := run.LastMetrics()
	if ok {
		row.Epoch, row.Step, row.Loss = m.Epoch, &m.Step, m.Loss
		if m.Steps > 0 {
			row.Steps = &m.Steps
		}
		if m.Attempt == row.Attempt && m.SamplesPerSec > 0 {
			row.Speed = &m.SamplesPerSec
		}
	}
	return err
}

// readLedger takes the run's history from its ledger. A ledger that cannot be read is not an error here.
func (row *RunStatus) readLedger(run *rundir.Dir) {
	history, err := run.Ledger()
	if err != nil {
		return
	}
	begun := ""
	for _, event := range history {
		switch event.Event {
		case rundir.EventEnd:
			if event.Attempt == row.Attempt-1 {
				row.before = event.Cause
			}
		case rundir.EventRestart:
			row.Restarts++
		case rundir.EventRequeue:
			row.Requeues++
			row.Expected, row.requeued = true, true
			row.Next = "starts again: " + event.Detail
		case rundir.EventRefused:
			row.Requeues--
			row.Expected, row.requeued = false, false
			row.Next = "Slurm did not requeue it: " + event.Detail
		case rundir.EventGiveUp:
			row.Next, row.Expected = "not started again: "+event.Detail, false
			row.givenUp = event.Detail != rundir.OwnDeadline && event.Detail != rundir.KilledAtLimit
		case rundir.EventLinkEnd:
			row.Next, row.Expected = event.Detail, true
		case rundir.EventCancel:
			row.Expected = false
		case rundir.EventBegin:
			row.Next, row.givenUp, begun, row.waits, row.Expected = "", false, event.Job, false, false
			row.requeued = false
			row.Link, row.Links = event.Link, event.Links
		case rundir.EventSubmit, rundir.EventResume:
			row.Next, row.givenUp, row.Expected = "", false, !isArray(run)
			row.Link, row.Links = event.Link, event.Links
			id, ok := event.SubmittedJob()
			row.waits = ok && id != slurm.WholeID(begun) && !isArray(run) // of an array, the elements' ledgers say it
		}
	}
	if row.isElement() && begun != row.Job { // the array was resumed, and its ledger says the rest
		row.Next, row.unbegun = "", true
		row.cancelled = cancelledBefore(history, row.Job)
	} else if (row.waits || row.requeued) && run.Spec().Kind == "slurm" {
		row.cancelled = cancelledBefore(history, row.Job)
	}
}

func (row *RunStatus) isElement() bool { return strings.Contains(row.Job, "_") }

func (row *RunStatus) submitted() bool { return row.run.Spec().Kind == "slurm" && row.Job != "" }

// addCutShort describes a submission whose outcome is not recorded, and that has no known job.
func (row *RunStatus) addCutShort(s *submission.Submission) {
	if s == nil || s.Job != "" || s.Open.Detail == rundir.EventLink && s.By == nil && s.Asked == nil {
		return
	}
	what := "a submit"
	if !s.First {
		what = "a resume"
	}
	switch {
	case s.By != nil:
		row.Next, row.Ended = "it is being submitted: "+s.By.String(), false
	case s.Asked != nil:
		row.Next, row.Ended = what+" was cut short; only Slurm knows whether it has the job, and its commands are not installed here",
			false
	default:
		row.Next = what + " was cut short, and Slurm has no job of this run; to submit it: ddpbatch resume " + slurm.ShellQuote(row.RunDir)
	}
	switch {
	case s.First && s.By != nil:
		row.State = "SUBMITTING"
	case s.First && s.Asked == nil:
		row.State = "UNSUBMITTED"
	}
}

// Jobs returns what a cluster knows of jobs. Jobs that it does not know any more are left out.
func (v *Viewer) Jobs(ctx context.Context, cluster string, ids []string) ([]slurm.JobStatus, error) {
	jobs, err := v.askJobs(ctx, cluster, ids)
	if errors.Is(err, slurm.ErrNoSlurm) {
		err = nil
	}
	return jobs, err
}

// askJobs is Jobs, but without Slurm's commands its error is slurm.ErrNoSlurm.
func (v *Viewer) askJobs(ctx context.Context, cluster string, ids []string) ([]slurm.JobStatus, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	jobs, err := v.Slurm.On(cluster).Jobs(ctx, ids)
	if errors.Is(err, slurm.ErrUnknownJob) {
		err = nil
	}
	return jobs, err
}
