package goodput

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"ddpbatch/internal/rundir"
)

// Accounts computes the breakdowns of runs repeatedly. It reads only the metrics that were written since the last call.
type Accounts struct {
	reads map[string]*progress // by run directory
}

// Of returns the breakdown of the time of a run, an array or an element of one, until now. What does not have an end in the ledger goes on
// until now or, if the caller knows that the run has ended, until its last sign of life, if there is one.
func (a *Accounts) Of(run *rundir.Dir, ended bool, now time.Time) (Breakdown, error) {
	return a.between(run, ended, time.Time{}, now)
}

// between is like Of, but only for the time from from on.
func (a *Accounts) between(run *rundir.Dir, ended bool, from, now time.Time) (Breakdown, error) {
	if ended {
		if last, err := lastSign(run); err == nil && !last.IsZero() && last.Before(now) {
			now = last
		}
	}
	elements, err := run.Elements()
	if err != nil {
		return Breakdown{}, err
	}
	if len(elements) == 0 {
		return a.one(run, from, now)
	}
	var sum Breakdown
	known := false
	for _, element := range elements {
		b, err := a.one(element, from, now)
		if err != nil {
			return Breakdown{}, err
		}
		known = known || b.Unknown == 0
		sum.Nodes = max(sum.Nodes, b.Nodes)
		sum.Add(b)
	}
	switch {
	case !known || sum.Why == "":
	case sum.Why == noMetrics:
		sum.Why = "some elements wrote no metrics"
	default:
		sum.Why = "for some elements " + sum.Why
	}
	return sum, nil
}

// lastSign returns when a run that has ended without recording its end was last known to be alive: the time of its last event, or of what
// its newest attempt has written.
func lastSign(run *rundir.Dir) (last time.Time, err error) {
	events, err := run.Ledger()
	if err != nil {
		return last, err
	}
	for _, e := range events {
		if e.Time.After(last) {
			last = e.Time
		}
	}
	signs := []func() (time.Time, error){func() (time.Time, error) {
		newest, err := run.NewestAttempt()
		if err != nil || newest == 0 {
			return time.Time{}, err
		}
		return run.LastSign(newest)
	}}
	elements, err := run.Elements()
	for _, element := range elements {
		signs = append(signs, func() (time.Time, error) { return lastSign(element) })
	}
	for _, sign := range signs {
		at, signErr := sign()
		err = errors.Join(err, signErr)
		if at.After(last) {
			last = at
		}
	}
	return last, err
}

// one returns the breakdown of a run that is not an array, or of an element.
func (a *Accounts) one(run *rundir.Dir, from, now time.Time) (Breakdown, error) {
	events, err := run.Ledger()
	if err != nil {
		return Breakdown{}, err
	}
	if whole := run.Array(); whole != nil {
		more, err := whole.Ledger()
		if err != nil {
			return Breakdown{}, err
		}
		index, _ := run.Index()
		events = withSubmissions(events, more, index)
	}
	spec := run.Spec()
	if start := startOf(events, spec.Created); start.After(from) {
		from = start
	}
	nodes := spec.Nodes
	isBegin := func(e rundir.Event) bool { return e.Event == rundir.EventBegin }
	if spec.Before != nil && slices.ContainsFunc(events, isBegin) { // no attempt has had what a resume --set asks for
		nodes = spec.Before.Nodes
	}
	b := account(events, &progress{}, run.AnewFrom(), nodes, from, now)
	if b.Running() > 0 { // otherwise the metrics cannot add anything
		reads, err := a.readMetrics(run)
		if err != nil {
			return Breakdown{}, err
		}
		b = account(events, reads, run.AnewFrom(), nodes, from, now)
		if b.Unknown > 0 {
			b.Why = reads.lack()
		}
	}
	return b, nil
}

// readMetrics returns what the run's metrics say, including what was read before.
func (a *Accounts) readMetrics(run *rundir.Dir) (*progress, error) {
	reads := a.reads[run.Path()]
	if reads == nil {
		reads = &progress{}
		if a.reads == nil {
			a.reads = map[string]*progress{}
		}
		a.reads[run.Path()] = reads
	}
	f, err := run.ReadMetrics()
	if errors.Is(err, fs.ErrNotExist) {
		return reads, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := reads.read(f); err != nil {
		return nil, fmt.Errorf("read the run's metrics: %w", err)
	}
	return reads, nil
}

// startOf returns when the run's time begins: with its first submission or, if it was not submitted, when its run directory was made.
func startOf(events []rundir.Event, created time.Time) time.Time {
	for _, e := range events {
		switch e.Event {
		case rundir.EventSubmit, rundir.EventResume, rundir.EventLink:
			return e.Time
		case rundir.EventBegin:
			if created.IsZero() || created.After(e.Time) {
				return e.Time
			}
			return created
		}
	}
	return created
}

// withSubmissions inserts the array's submissions that include the element index into the element's own events, by time. The element's
// events stay in their order, as the clocks of nodes differ.
func withSubmissions(events, array []rundir.Event, index int) []rundir.Event {
	for _, e := range array {
		if _, ok := e.SubmittedJob(); !ok {
			continue
		}
		if of := e.Indices(); len(of) > 0 && !slices.Contains(of, index) {
			continue
		}
		at := slices.IndexFunc(events, func(other rundir.Event) bool { return other.Time.After(e.Time) })
		if at < 0 {
			at = len(events)
		}
		events = slices.Insert(events, at, e)
	}
	return events
}
