package distributed

import (
	"context"
	"time"
)

// progress is what a rank tells in a meeting while all are at work: once, how its own has ended.
type progress[T any] struct {
	Over   bool       `json:"over,omitempty"` // just now
	Report *report[T] `json:"report,omitempty"`
}

// report is how the work of one rank has ended.
type report[T any] struct {
	Value   T        `json:"value"`
	Failure *failure `json:"failure,omitempty"`
}

// verdict is rank 0's answer: none yet, or the last.
type verdict[B any] struct {
	Over  bool `json:"over"`
	Value B    `json:"value"`
}

// beside runs work on every rank, and has the ranks meet at every tick until it is over on all. So however long a disk takes, no
// collective waits longer than that. Rank 0 decides, by the reports of all ranks, what every rank gets; an error of its decision is every
// rank's. Where the group fails, ctx is cancelled for work; beside returns after that in any case.
func beside[T, B any](ctx context.Context, s *Saver, work func(context.Context) (T, error), decide func([]report[T]) (B, error)) (B, error) {
	t := s.talk
	ctx, cancel := context.WithCancel(ctx)
	var value T
	var own error
	done := make(chan struct{})
	go func() {
		defer close(done)
		value, own = work(ctx)
	}()
	defer func() { cancel(); <-done }()
	reports, missing, told := make([]report[T], t.group.Size()), t.group.Size(), false
	for {
		var p progress[T]
		if !told && within(done, s.o.tick) {
			told = true
			p = progress[T]{true, &report[T]{value, t.failureOf(own)}}
		}
		var mine error
		if told {
			mine = own
		}
		v, err := exchange(ctx, t, p, mine, func(all []progress[T]) (v verdict[B], err error) {
			for rank, p := range all {
				if p.Over && p.Report != nil {
					reports[rank] = *p.Report
					missing--
				}
			}
			if v.Over = missing == 0; v.Over {
				v.Value, err = decide(reports)
			}
			return v, err
		})
		if err != nil || v.Over {
			return v.Value, err
		}
	}
}

// within waits until something is done, or a tick has passed.
func within(done <-chan struct{}, tick time.Duration) bool {
	timer := time.NewTimer(tick)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// together is beside where all that counts is whether it works: the first rank's error is every rank's.
func together(ctx context.Context, s *Saver, work func(context.Context) error) error {
	var own error
	_, err := beside(ctx, s, func(ctx context.Context) (struct{}, error) {
		own = work(ctx)
		return struct{}{}, own
	}, func(all []report[struct{}]) (struct{}, error) {
		return struct{}{}, s.talk.error(firstOf(all), own)
	})
	return err
}

func firstOf[T any](all []report[T]) *failure {
	for _, r := range all {
		if r.Failure != nil {
			return r.Failure
		}
	}
	return nil
}

// onRank0 is beside with work for rank 0 alone, whose result is every rank's.
func onRank0[T any](ctx context.Context, s *Saver, work func(context.Context) (T, error)) (T, error) {
	var result T
	var own error
	return beside(ctx, s, func(ctx context.Context) (struct{}, error) {
		if s.talk.lead() {
			result, own = work(ctx)
		}
		return struct{}{}, nil
	}, func([]report[struct{}]) (T, error) { return result, own })
}
