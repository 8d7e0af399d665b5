package report

import (
	"slices"
	"time"

	"ddpbatch/internal/rundir"
	"ddpbatch/internal/text"
)

// Attempt is one of a run's, from the queue to its end.
type Attempt struct {
	Attempt int        `json:"attempt"`
	Job     string     `json:"job"`
	Link    int        `json:"link"`   // of a chain, from 1; 0: it is none
	Queued  *time.Time `json:"queued"` // since when its job waited; nil: it did not, as after a restart in the job
	Began   *time.Time `json:"began"`
	Ended   *time.Time `json:"ended"`
	Cause   string     `json:"cause"`      // empty: it has not ended, or nobody lived to say so
	Node    string     `json:"node"`       // of the rank that ended first of those that ended badly
	Nodes   []string   `json:"nodes"`      // that failed
	Rank    *int       `json:"first_rank"` // nil: none ended badly
	Exit    *int       `json:"exit"`       // nil: there is no verdict
	First   int64      `json:"first_step"` // of its metrics; 0: it has none, as with the last
	Last    int64      `json:"last_step"`
	Message string     `json:"message"`
	Report  string     `json:"report"` // the failure, in some lines
	Next    string     `json:"next"`   // what followed: "restart", "requeue", "link-end" or "give-up", and why; empty: nothing did

	seen time.Time // its last line of metrics
}

// readAttempts puts together what the ledger and the verdicts say of the newest attempts.
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
	delete(all, 0) // events of no attempt
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
	if err != nil { // there is none, or it was cut short, and the ledger tells
		return
	}
	if a.Ended == nil { // nobody could write to the ledger, or a rank was alone
		a.end(v.Event())
	}
	a.Exit = &v.Exit
	if v.FirstRank >= 0 && len(v.Ranks) > 0 {
		a.Rank = &v.FirstRank
	}
	a.Report = text.CleanLines(text.Cut(v.Report, 4*maxMessage))
}

// addSteps takes from the metrics what steps the attempts have done, and when they were there where the ledger does not say.
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
