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

// channel exchanges facts between ranks, as JSON over a Group. All values it sends can be encoded as JSON:
// a value that cannot is a mistake in this package, and panics.
type channel struct {
	group   Group
	classes []error // errors that errors.Is finds on every rank
}

func newChannel(group Group, own []error) *channel {
	return &channel{group: group, classes: slices.Concat(own, sentinels)}
}

func (c *channel) isCoordinator() bool { return c.group.Rank() == 0 }

func encode(value any) []byte {
	text, err := json.Marshal(value)
	if err != nil {
		panic("distributed: encode a message: " + err.Error())
	}
	return text
}

// exchange sends every rank's message to rank 0, and rank 0's decision to all ranks. An error of decide, or a message that rank 0 cannot
// decode, is returned on every rank. own is this rank's error; it is returned itself, not as text, if it is the one that counts.
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
		return nil, fmt.Errorf("got %d messages from %d ranks", len(texts), ranks)
	}
	all := make([]A, ranks)
	for rank, text := range texts {
		if err := json.Unmarshal(text, &all[rank]); err != nil {
			return nil, fmt.Errorf("decode the message of rank %d: %w", rank, err)
		}
	}
	return all, nil
}

// valueOrFailure is the result of one rank's work, or rank 0's answer to all ranks.
type valueOrFailure[T any] struct {
	Value   T                `json:"value"`
	Failure *failure.Failure `json:"failure,omitempty"`
}

// fromRank0 returns on every rank what rank 0 passes: value, or its error err. The other ranks' values are ignored.
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
			return value, fmt.Errorf("decode the message of rank 0: %w", e)
		}
	}
	return a.Value, c.error(a.Failure, err)
}

// progress is what a rank reports in an exchange while ranks are at work. It reports the end of its own work once.
type progress[T any] struct {
	Over   bool               `json:"over,omitempty"` // the work has just ended
	Report *valueOrFailure[T] `json:"report,omitempty"`
}

// reply is rank 0's answer: with Over it is the last one and has a value.
type reply[B any] struct {
	Over  bool `json:"over"`
	Value B    `json:"value"`
}

// runOnEveryRank runs work on every rank. At every tick the ranks exchange how far they are, until all are done. So however
// slow a disk is, no collective waits longer than a tick. Rank 0 computes the result for every rank from the reports of all ranks; an error
// of decide is returned on every rank. If the group fails, ctx is canceled for work. runOnEveryRank never returns before work has.
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

// doneWithin waits until done is closed, or a tick has passed, and reports whether it was closed.
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

// runTogether is runOnEveryRank for work without a result: the error of the lowest rank that has one is returned on every rank.
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

// runOnRank0 is runOnEveryRank with work on rank 0 alone, whose result is returned on every rank.
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

// sentinels are the errors that callers on every rank distinguish, in the order of their numbers in messages.
var sentinels = []error{
	checkpoint.ErrFenced, checkpoint.ErrNoSpace, checkpoint.ErrPermission, checkpoint.ErrStale, checkpoint.ErrCorrupt,
	checkpoint.ErrFormatTooNew, checkpoint.ErrNone, errLocal, context.Canceled, context.DeadlineExceeded,
}

// selfExplaining are the sentinels whose text is enough on a rank where nothing happened.
var selfExplaining = []error{checkpoint.ErrFenced, checkpoint.ErrNoSpace, checkpoint.ErrPermission,
	checkpoint.ErrStale, checkpoint.ErrCorrupt}

// failureOf turns err into a message. A failure that came in a message is passed on unchanged.
func (c *channel) failureOf(err error) *failure.Failure {
	f := failure.Of(c.group.Rank(), err, c.classes)
	if from, ok := errors.AsType[*failure.Error](err); ok {
		f.Rank, f.Text = from.Rank(), from.Text()
	} else if own, ok := errors.AsType[*ownError](err); ok {
		f.Text = failure.Of(f.Rank, own.err, nil).Text
	}
	return f
}

// error returns the failure as an error for this rank's caller. own is this rank's error; it is returned itself if the failure is of this
// rank.
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

// brief is like error, but only rank 0 and the rank where the error happened return the full text. The other ranks return only the class,
// if its text is enough.
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

// ownError is an error of this rank that fails all ranks. It has the same text as on the others, and matches the same class. If err matches
// several classes, only that one counts, or the ranks would take different ways by checking for different classes. If err has no class,
// errors.Is finds everything in it.
type ownError struct {
	rank    int
	err     error
	class   error   // nil if it has none
	classes []error // all classes
}

func (e *ownError) Error() string { return fmt.Sprintf("rank %d: %v", e.rank, e.err) }

// Is matches, of the classes, only the one that all ranks find.
func (e *ownError) Is(target error) bool {
	if slices.Contains(e.classes, target) {
		return target == e.class
	}
	return errors.Is(e.err, target)
}

func (e *ownError) As(target any) bool { return errors.As(e.err, target) }
