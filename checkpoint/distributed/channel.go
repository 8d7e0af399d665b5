package distributed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/failure"
)

// channel is how ranks exchange facts: JSON over a Group. What it sends always is JSON:
// that it is not is a mistake in this package, and panics.
type channel struct {
	group   Group
	classes []error // the errors that keep their identity on the way
}

func newChannel(group Group, own []error) *channel {
	return &channel{group: group, classes: slices.Concat(own, sentinels)}
}

func (c *channel) isCoordinator() bool { return c.group.Rank() == 0 }

func encode(value any) []byte {
	text, err := json.Marshal(value)
	if err != nil {
		panic("distributed: a message is no JSON")
	}
	return text
}

// exchange tells rank 0 what every rank has to say, and all ranks what rank 0 decides. An error of decide, or a message that rank 0 cannot
// read, is every rank's; own is this rank's, and is kept whole where it is the one that counts.
func exchange[A, B any](ctx context.Context, c *channel, message A, own error, decide func(all []A) (B, error)) (b B, err error) {
	texts, err := c.group.Gather(ctx, encode(message))
	if err != nil {
		return b, err
	}
	if !c.isCoordinator() {
		return fromRank0(ctx, c, b, own)
	}
	all, err := decode[A](texts, c.group.Size())
	if err == nil {
		b, err = decide(all)
	}
	return fromRank0(ctx, c, b, err)
}

func decode[A any](texts [][]byte, ranks int) ([]A, error) {
	if len(texts) != ranks {
		return nil, fmt.Errorf("%d messages of %d ranks", len(texts), ranks)
	}
	all := make([]A, ranks)
	for rank, text := range texts {
		if err := json.Unmarshal(text, &all[rank]); err != nil {
			return nil, fmt.Errorf("message of rank %d: %w", rank, err)
		}
	}
	return all, nil
}

// valueOrFailure is how the work of one rank has ended, or what rank 0 answers all ranks.
type valueOrFailure[T any] struct {
	Value   T                `json:"value"`
	Failure *failure.Failure `json:"failure,omitempty"`
}

// fromRank0 gives every rank what rank 0 has: value, or its error err. The others' values do not count.
func fromRank0[T any](ctx context.Context, c *channel, value T, err error) (T, error) {
	a := valueOrFailure[T]{Value: value}
	var payload []byte
	if c.isCoordinator() {
		a.Failure = c.failureOf(err)
		payload = encode(a)
	}
	text, e := c.group.Broadcast(ctx, payload)
	if e != nil {
		return value, e
	}
	if !c.isCoordinator() {
		a = valueOrFailure[T]{}
		if e := json.Unmarshal(text, &a); e != nil {
			return value, fmt.Errorf("message of rank 0: %w", e)
		}
	}
	return a.Value, c.error(a.Failure, err)
}

// progress is what a rank reports in an exchange while all are at work: once, how its own has ended.
type progress[T any] struct {
	Over   bool               `json:"over,omitempty"` // just now
	Report *valueOrFailure[T] `json:"report,omitempty"`
}

// reply is rank 0's answer: none yet, or the last.
type reply[B any] struct {
	Over  bool `json:"over"`
	Value B    `json:"value"`
}

// runOnEveryRank runs work on every rank, and has the ranks exchange how far they are at every tick until it is over on all. So however
// long a disk takes, no collective waits longer than that. Rank 0 decides, by the reports of all ranks, what every rank gets; an error of
// its decision is every rank's. Where the group fails, ctx is cancelled for work; runOnEveryRank returns after that in any case.
func runOnEveryRank[T, B any](
	ctx context.Context, s *Saver, work func(context.Context) (T, error), decide func([]valueOrFailure[T]) (B, error),
) (B, error) {
	c := s.channel
	ctx, cancel := context.WithCancel(ctx)
	var value T
	var own error
	done := make(chan struct{})
	go func() {
		defer close(done)
		value, own = work(ctx)
	}()
	defer func() { cancel(); <-done }()
	reports, missing, reported := make([]valueOrFailure[T], c.group.Size()), c.group.Size(), false
	for {
		var p progress[T]
		if !reported && doneWithin(done, s.o.tick) {
			reported = true
			p = progress[T]{true, &valueOrFailure[T]{value, c.failureOf(own)}}
		}
		var mine error
		if reported {
			mine = own
		}
		v, err := exchange(ctx, c, p, mine, func(all []progress[T]) (v reply[B], err error) {
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

// doneWithin waits until something is done, or a tick has passed.
func doneWithin(done <-chan struct{}, tick time.Duration) bool {
	timer := time.NewTimer(tick)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// runTogether is runOnEveryRank where all that counts is whether it works: the first rank's error is every rank's.
func runTogether(ctx context.Context, s *Saver, work func(context.Context) error) error {
	var own error
	_, err := runOnEveryRank(ctx, s, func(ctx context.Context) (struct{}, error) {
		own = work(ctx)
		return struct{}{}, own
	}, func(all []valueOrFailure[struct{}]) (struct{}, error) {
		return struct{}{}, s.channel.error(firstFailure(all), own)
	})
	return err
}

func firstFailure[T any](all []valueOrFailure[T]) *failure.Failure {
	for _, r := range all {
		if r.Failure != nil {
			return r.Failure
		}
	}
	return nil
}

// runOnRank0 is runOnEveryRank with work for rank 0 alone, whose result is every rank's.
func runOnRank0[T any](ctx context.Context, s *Saver, work func(context.Context) (T, error)) (T, error) {
	var result T
	var own error
	return runOnEveryRank(ctx, s, func(ctx context.Context) (struct{}, error) {
		if s.channel.isCoordinator() {
			result, own = work(ctx)
		}
		return struct{}{}, nil
	}, func([]valueOrFailure[struct{}]) (T, error) { return result, own })
}

// sentinels are the errors that callers on every rank tell apart, in the order of their numbers in messages.
var sentinels = []error{
	checkpoint.ErrFenced, checkpoint.ErrNoSpace, checkpoint.ErrPermission, checkpoint.ErrStale, checkpoint.ErrCorrupt,
	checkpoint.ErrFormatTooNew, checkpoint.ErrNone, errLocal, context.Canceled, context.DeadlineExceeded,
}

// selfExplaining are the sentinels that say enough by themselves to a rank where nothing happened.
var selfExplaining = []error{checkpoint.ErrFenced, checkpoint.ErrNoSpace, checkpoint.ErrPermission,
	checkpoint.ErrStale, checkpoint.ErrCorrupt}

// failureOf makes err a message; a failure that came in one goes on as it is.
func (c *channel) failureOf(err error) *failure.Failure {
	f := failure.Of(c.group.Rank(), err, c.classes)
	if from, ok := errors.AsType[*failure.Error](err); ok {
		f.Rank, f.Text = from.Rank(), from.Text()
	} else if own, ok := errors.AsType[*ownError](err); ok {
		f.Text = failure.Of(f.Rank, own.err, nil).Text
	}
	return f
}

// error is the failure as this rank's caller gets it; own is this rank's error, and is kept whole where it is the one that counts.
func (c *channel) error(f *failure.Failure, own error) error {
	if f == nil {
		return nil
	}
	remote := f.Elsewhere(c.classes)
	if own == nil || f.Rank != c.group.Rank() {
		return remote
	}
	if e, ok := errors.AsType[*ownError](own); ok {
		return e
	}
	return &ownError{rank: f.Rank, err: own, class: remote.Unwrap(), classes: c.classes}
}

// brief is error for what rank 0 and the rank where it happened tell whole: the others keep to its class, where that says enough.
func (c *channel) brief(f *failure.Failure, own error) error {
	if f != nil && !c.isCoordinator() {
		if class := f.Elsewhere(c.classes).Unwrap(); slices.Contains(selfExplaining, class) {
			short := *f
			short.Text = fmt.Sprintf("%v (see the output of rank 0)", class)
			f = &short
		}
	}
	return c.error(f, own)
}

// ownError is an error of this rank that fails all. It reads as it does on the others, and is of the same class: where it is of several,
// the ranks would go different ways if each looked for another. Of what has no class, all can be found in it.
type ownError struct {
	rank    int
	err     error
	class   error   // nil: none
	classes []error // all there are
}

func (e *ownError) Error() string { return fmt.Sprintf("rank %d: %v", e.rank, e.err) }

// Is finds the class that all ranks find, and none of the others.
func (e *ownError) Is(target error) bool {
	if slices.Contains(e.classes, target) {
		return target == e.class
	}
	return errors.Is(e.err, target)
}

func (e *ownError) As(target any) bool { return errors.As(e.err, target) }
