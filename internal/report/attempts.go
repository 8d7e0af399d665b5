package report

import (
	"slices"
	"time"

	"ddpbatch/internal/rundir"
	"ddpbatch/internal/text"
)

// Attempt is an attempt of a run, from the queue to its end.
type Attempt struct {
	Attempt int        `json:"attempt"`
	Job     string     `json:"job"`
	Link    int        `json:"link"`   // in a chain, from 1; 0 if the run is not a chain
	Queued  *time.Time `json:"queued"` // when its job began to wait; nil if it did not wait, as after a restart within the job
	Began   *time.Time `json:"began"`
	Ended   *time.Time `json:"ended"`
	Cause   string     `json:"cause"`      // empty if it has not ended, or if the end was not recorded
	Node    string     `json:"node"`       // of the first rank that failed
	Nodes   []string   `json:"nodes"`      // that failed
	Rank    *int       `json:"first_rank"` // nil if no rank failed
	Exit    *int       `json:"exit"`       // nil if there is no verdict
	First   int64      `json:"first_step"` // of its metrics; 0 if it has none, as for Last
	Last    int64      `json:"last_step"`
	Message string     `json:"message"`
	Error   string     `json:"error"`  // of the rank that failed first, one line; empty if it is not known
	Report  string     `json:"report"` // of the failure, a few lines
	Next    string     `json:"next"`   // what followed: "restart", "requeue", "link-end" or "give-up", and why; empty if nothing did

	seen time.Time // time of its last line of metrics
}

// readAttempts combines what the ledger and the verdicts say about the newest attempts.
func (d *Data) readAttempts(run *rundir.Dir, events []rundir.Event) {
	all := map[int]*Attempt{}
	of := func(n int) *Attempt {
		if all[n] == nil {
			all[n] = &Attempt{Attempt: n, Nodes: []string{}}
		}
		return all[n]
	}
	newest, err := run.NewestAttempt()
	d.fault(err)
	for n := max(1, newest-maxAttempts+1); n <= newest; n++ {
		of(n)
	}
	var queued *time.Time
	for _, e := range events {
		switch e.Event {
		case rundir.EventSubmit, rundir.EventResume:
			queued = &e.Time
		case rundir.EventLink, rundir.EventLinkEnd, rundir.EventRequeue:
			if queued = &e.Time; e.Event == rundir.EventLink {
				continue
			}
			of(e.Attempt).follow(e)
		case rundir.EventRestart, rundir.EventGiveUp:
			of(e.Attempt).follow(e)
		case rundir.EventRefused:
			queued = nil
		case rundir.EventBegin:
			a := of(e.Attempt)
			a.Job, a.Link, a.Began, a.Queued = shown(e.Job), e.Link, &e.Time, queued
			queued = nil
		case rundir.EventEnd:
			of(e.Attempt).end(e)
		}
	}
	delete(all, 0) // events that belong to no attempt
	d.Attempts = []Attempt{}
	for _, a := range all {
		d.Attempts = append(d.Attempts, *a)
	}
	slices.SortFunc(d.Attempts, func(a, b Attempt) int { return a.Attempt - b.Attempt })
	if over := len(d.Attempts) - maxAttempts; over > 0 {
		d.Attempts = d.Attempts[over:]
	}
	if len(d.Attempts) > 0 {
		d.Earlier.Attempts = d.Attempts[0].Attempt - 1
	}
	for i := range d.Attempts {
		d.Attempts[i].readVerdict(run)
	}
	d.Earlier.Events = max(0, len(events)-maxEvents)
	d.Ledger = append([]rundir.Event{}, events[d.Earlier.Events:]...)
}

func (a *Attempt) follow(e rundir.Event) {
	a.Next = e.Event
	if e.Detail != "" {
		a.Next += ": " + shown(e.Detail)
	}
}

func (a *Attempt) end(e rundir.Event) {
	a.Ended, a.Cause, a.Node, a.Message = &e.Time, e.Cause, shown(e.Node), shown(e.Detail)
	a.Nodes = append([]string{}, e.Nodes...)
}

// readVerdict adds what the verdict has and the ledger lacks.
func (a *Attempt) readVerdict(run *rundir.Dir) {
	v, err := run.Verdict(a.Attempt)
	if err != nil { // missing or incomplete: the ledger must suffice
		return
	}
	if a.Ended == nil { // the ledger could not be written, or a rank ran without an agent
		a.end(v.Event())
	}
	a.Exit = &v.Exit
	if v.FirstRank >= 0 && len(v.Ranks) > 0 {
		a.Rank = &v.FirstRank
	}
	a.Error = shown(v.Error)
	a.Report = text.CleanLines(text.Cut(v.Report, 4*maxMessage))
}

// addSteps takes the steps of the attempts from the metrics, and times that the ledger does not have.
func (d *Data) addSteps() {
	for i := range d.Attempts {
		a := &d.Attempts[i]
		for _, s := range d.Metrics.Sections {
			if s.Attempt != a.Attempt {
				continue
			}
			if a.Last == 0 {
				a.First = s.from
			}
			a.Last, a.seen = s.Last, s.Ended
			if a.Began == nil && !s.Began.IsZero() {
				a.Began = &s.Began
			}
		}
	}
}
