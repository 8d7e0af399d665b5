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

// Viewer looks at runs, and shows them.
type Viewer struct {
	Slurm    *slurm.Client
	Now      func() time.Time
	From     text.Dir  // where a person stands: paths are written as seen from there
	Out, Err io.Writer // logs, and what is said of them
	Log      *slog.Logger
}

// RunStatus is a row of status; its JSON names are a contract (docs/cli/status.md).
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
	Speed   *float64 `json:"samples_per_s"` // of all ranks; nil: they do not run, or have not said
	Exit    *int     `json:"exit"`
	Message string   `json:"message"`
	RunDir  string   `json:"run_dir"`
	Cluster string   `json:"cluster,omitempty"` // of Job; empty: the default cluster

	Stragglers []rundir.Straggler `json:"stragglers"` // ranks that are slower than the others, while they run; nil: none is, or nobody says

	Saved *time.Time `json:"saved"` // when something was saved last; nil: nothing was
	Ends  *time.Time `json:"ends"`  // when its time limit ends the job that runs; nil: none does, or that is not known

	Cause    string `json:"cause"`    // of the newest attempt's end; empty where it has not ended
	Error    string `json:"error"`    // of that, what the rank that failed first said was wrong; empty: nothing
	Class    string `json:"class"`    // where that lies: "program", "infrastructure"; empty: not known
	Advice   string `json:"advice"`   // what a person can do about it
	Restarts int    `json:"restarts"` // of the workers, within the run's jobs
	Requeues int    `json:"requeues"`
	Next     string `json:"next"` // what follows, or why nothing does; empty while an attempt runs

	Link  int `json:"link"`  // of a chain, which link Job is, from 1; 0: it is none
	Links int `json:"links"` // how many there were to be

	Goodput *goodput.Breakdown `json:"goodput,omitempty"` // where its time went, once AddGoodput was called

	run        *rundir.Dir
	Failed     error  `json:"-"` // why the run could not be read
	Ended      bool   `json:"-"` // it will not go on by itself
	saved      bool   // the newest attempt did, before it ended
	cancelled  bool   // by a person, before it began
	Simulated  bool   `json:"-"` // by a process that lives
	unbegun    bool   // an element, as the job that it is part of now
	waits      bool   // its newest job has not begun an attempt
	givenUp    bool   // so that a wish to be started again is not granted
	Expected   bool   `json:"-"` // by its ledger, Slurm is to start a job of it, or of an element
	Reported   bool   `json:"-"` // Slurm has told its state
	VerdictJob string `json:"-"` // the job whose end Exit, Message and Cause tell

	cutShort *submission.Submission // of which nobody recorded what came of it; nil: there is none
	array    *arrayJobs             // nil: it is no array
	chain    *chain                 // nil: it is one job, or an array
	open     []slurm.JobStatus      // the links of the chain that have not ended
	elements []RunStatus            // of an array
	index    int                    // of an element
}

// Status puts together what Slurm and the run directory know of a run.
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

// Statuses is Status for several runs; each cluster is asked once for all of them, and once more for the jobs of submissions that nobody
// recorded. It is asked before their directories are read, as what a job leaves is there before Slurm calls it ended.
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
			rows[i].Failed = v.read(&rows[i], q.jobs)
		}
	})
	return rows, nil
}

// question is what one cluster is asked, and its answer.
type question struct {
	ids, others    []string // others: of other users' runs
	jobs           []slurm.JobStatus
	err, othersErr error
}

func (v *Viewer) ask(ctx context.Context, cluster string, q *question) {
	q.jobs, q.err = v.Jobs(ctx, cluster, slices.Concat(q.ids, q.others))
	q.othersErr = q.err
	if q.err != nil && len(q.others) > 0 && ctx.Err() == nil {
		// other users' runs may name what no Slurm takes for a job or a cluster
		q.jobs, q.err = v.Jobs(ctx, cluster, q.ids)
	}
}

// ids are the jobs that Slurm is asked about for the run.
func (row *RunStatus) ids() []string {
	switch {
	case row.array != nil:
		return row.array.ids()
	case row.chain != nil:
		return row.chain.left()
	}
	return []string{row.Job}
}

// identify tells which job, or jobs, a run is.
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

// lookForLost finds the job that a command was killed before it could record it. Nothing is written: whoever only looks may not be
// allowed to.
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

// read puts together what Slurm knows of jobs and what the run that row identifies has left.
func (v *Viewer) read(row *RunStatus, jobs []slurm.JobStatus) error {
	array, chain, cutShort, cluster := row.array, row.chain, row.cutShort, row.Cluster
	if err := v.readRun(row, row.run, row.Job); err != nil {
		return err
	}
	defer row.addCutShort(cutShort)
	row.chain, row.Cluster = chain, cluster
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

// readRun takes from the run directory all but the state; id is its newest job.
func (v *Viewer) readRun(row *RunStatus, run *rundir.Dir, id string) (err error) {
	*row = RunStatus{Job: id, Name: run.Spec().Name, RunDir: run.Path(), Cluster: run.Cluster(), run: run}
	row.Simulated = simulating(run, id) // before the rest: how that ends is in the directory
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
	if saved, err := checkpoint.LastSaved(run.CheckpointsPath()); err == nil && !saved.IsZero() { // an error is that of whoever lists them
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

// readLedger takes what the run has been through from its ledger. A ledger that cannot be read is not worth a failure here.
func (row *RunStatus) readLedger(run *rundir.Dir) {
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
			row.Expected = true
			row.Next = "starts again: " + event.Detail
		case rundir.EventRefused:
			row.Requeues--
			row.Expected = false
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
			row.Link, row.Links = event.Link, event.Links
		case rundir.EventSubmit, rundir.EventResume:
			row.Next, row.givenUp, row.Expected = "", false, !isArray(run)
			row.Link, row.Links = event.Link, event.Links
			id, ok := event.SubmittedJob()
			row.waits = ok && id != slurm.WholeID(begun) && !isArray(run) // of an array its elements' ledgers tell
		}
	}
	if row.isElement() && begun != row.Job { // the array was resumed, and its ledger tells
		row.Next, row.unbegun = "", true
		row.cancelled = cancelledBefore(history, row.Job)
	}
}

func (row *RunStatus) isElement() bool { return strings.Contains(row.Job, "_") }

func (row *RunStatus) submitted() bool { return row.run.Spec().Kind == "slurm" && row.Job != "" }

// addCutShort tells of a submission of which nobody recorded what came of it, and that has no job as far as is known.
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
		row.Next, row.Ended = what+" was cut short; whether Slurm has taken its job, only Slurm can tell, and its commands are not here",
			false
	default:
		row.Next = what + " was cut short, and Slurm has no job of it; to submit it: ddpbatch resume " + slurm.ShellQuote(row.RunDir)
	}
	switch {
	case s.First && s.By != nil:
		row.State = "SUBMITTING"
	case s.First && s.Asked == nil:
		row.State = "UNSUBMITTED"
	}
}

// Jobs tells what a cluster knows of jobs; those that it knows no longer are left out.
func (v *Viewer) Jobs(ctx context.Context, cluster string, ids []string) ([]slurm.JobStatus, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	jobs, err := v.Slurm.On(cluster).Jobs(ctx, ids)
	if errors.Is(err, slurm.ErrUnknownJob) || errors.Is(err, slurm.ErrNoSlurm) {
		err = nil
	}
	return jobs, err
}
