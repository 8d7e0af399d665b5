package mpi

import (
	"context"
	"fmt"
	"strings"
	"time"

	"ddpbatch/mpi/internal/engine"
	"ddpbatch/mpi/internal/tick"
)

// AbsentError names the ranks that did not come to a MonitoredBarrier.
type AbsentError struct {
	Ranks   []int
	Timeout time.Duration
}

func (e *AbsentError) Error() string {
	names := make([]string, len(e.Ranks))
	for i, rank := range e.Ranks {
		names[i] = fmt.Sprint(rank)
	}
	what := "rank " + names[0] + " has"
	if len(names) > 1 {
		what = "ranks " + strings.Join(names, ", ") + " have"
	}
	return fmt.Sprintf("%s not come within %v", what, e.Timeout)
}

// Unwrap makes errors.Is find ErrTimeout.
func (e *AbsentError) Unwrap() error { return ErrTimeout }

// MonitoredBarrier is Barrier with a time-out of its own, at which rank 0 finds out who is missing: its error then is an AbsentError
// that names all that have not come; the others get an AbortError with the same text. It costs rank 0 a message
// to and from each rank.
func (c *Comm) MonitoredBarrier(ctx context.Context, timeout time.Duration) error {
	k := c.core
	if k.group == nil {
		return c.Barrier(ctx)
	}
	return k.alone(func() error {
		o := operation{kind: monitoredCall}
		k.seq++
		call := o.call(k)
		r, from := k.world.recorder, tick.Now()
		number := r.begin(call, "", from)
		err := k.broken()
		if err == nil {
			err = k.monitor(ctx, call, from, timeout)
		}
		if err != nil {
			err = k.fail(call, err)
		}
		r.end(number, err, tick.Now())
		return err
	})
}

// monitor is a rank's part in the barrier.
func (k *core) monitor(ctx context.Context, call engine.Call, now tick.Count, timeout time.Duration) error {
	if err := k.group.Begin(call, now); err != nil {
		return err
	}
	defer func() { k.group.End(tick.Now()) }()
	k.port.begin(ctx)
	if k.group.Rank() != 0 {
		sent, answer := k.port.Send(0, nil), k.port.Recv(0, nil)
		if err := k.port.Wait(sent); err != nil {
			return err
		}
		return k.port.Wait(answer)
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for rank := 1; rank < k.group.Size(); rank++ {
		k.port.Recv(rank, nil)
	}
	arrivals := k.port.ops[:k.port.used]
	if err := k.group.Watch(limited, func() bool { return countDone(arrivals) == len(arrivals) }); err != nil {
		if ctx.Err() != nil || limited.Err() == nil {
			return err
		}
		return absent(arrivals, timeout)
	}
	for rank := 1; rank < k.group.Size(); rank++ {
		if err := k.group.Wait(ctx, arrivals[rank-1]); err != nil {
			return err
		}
		k.port.Send(rank, nil)
	}
	for _, op := range k.port.ops[:k.port.used] {
		if err := k.group.Wait(ctx, op); err != nil {
			return err
		}
	}
	return nil
}

func countDone(ops []*engine.Op) int {
	n := 0
	for _, op := range ops {
		if op.Done() {
			n++
		}
	}
	return n
}

// absent names the ranks whose message has not come; that of rank i+1 is ops[i].
func absent(ops []*engine.Op, timeout time.Duration) error {
	e := &AbsentError{Timeout: timeout}
	for i, op := range ops {
		if !op.Done() {
			e.Ranks = append(e.Ranks, i+1)
		}
	}
	return e
}
