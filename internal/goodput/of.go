package goodput

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"ddpbatch/internal/rundir"
)

// Of accounts for the time of a run, an array or an element of one, until now. What has no end in the ledger goes on until now: a caller
// who knows that it has ended passes when that was.
func Of(run *rundir.Dir, now time.Time) (Breakdown, error) { return Between(run, time.Time{}, now) }

// Between is Of for the part of the time that is not before from.
func Between(run *rundir.Dir, from, now time.Time) (Breakdown, error) {
	elements, err := run.Elements()
	if err != nil {
		return Breakdown{}, err
	}
	if len(elements) == 0 {
		return Follow(run).between(from, now)
	}
	sum := Breakdown{Nodes: run.Spec().Nodes}
	for _, element := range elements {
		b, err := Follow(element).between(from, now)
		if err != nil {
			return Breakdown{}, err
		}
		sum.Add(b)
	}
	return sum, nil
}

// LastSign is when a run that has ended, and has not written down when, was last known to live: its last event, or what its newest attempt
// has left.
func LastSign(run *rundir.Dir) (last time.Time, err error) {
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
		signs = append(signs, func() (time.Time, error) { return LastSign(element) })
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

// Account is the time of a run that goes on.
type Account struct {
	run   *rundir.Dir
	reads progress
}

// Follow begins to account for the time of a run, or of an element.
func Follow(run *rundir.Dir) *Account { return &Account{run: run} }

// At accounts for the time until now. Of the metrics it reads what has come since the last call.
func (a *Account) At(now time.Time) (Breakdown, error) { return a.between(time.Time{}, now) }

func (a *Account) between(from, now time.Time) (Breakdown, error) {
	events, err := a.run.Ledger()
	if err != nil {
		return Breakdown{}, err
	}
	if whole := a.run.Array(); whole != nil {
		more, err := whole.Ledger()
		if err != nil {
			return Breakdown{}, err
		}
		index, _ := a.run.Index()
		events = withSubmissions(events, more, index)
	}
	spec := a.run.Spec()
	if start := startOf(events, spec.Created); start.After(from) {
		from = start
	}
	b := account(events, &progress{}, a.run.AnewFrom(), from, now)
	if b.Running() > 0 { // else the metrics have nothing to tell
		if err := a.readMetrics(); err != nil {
			return Breakdown{}, err
		}
		b = account(events, &a.reads, a.run.AnewFrom(), from, now)
	}
	b.Nodes = spec.Nodes
	return b, nil
}

func (a *Account) readMetrics() error {
	f, err := a.run.ReadMetrics()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if err := a.reads.read(f); err != nil {
		return fmt.Errorf("read the run's metrics: %w", err)
	}
	return nil
}

// startOf is when the run's time begins: with its first submission; of one that nobody submitted, when it was made.
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

// withSubmissions puts the submissions of an array that are of the element index among its own events, by time, which else stay in their
// order: the clocks of nodes differ.
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
