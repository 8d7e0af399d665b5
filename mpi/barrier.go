package mpi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"ddpbatch/mpi/internal/algorithm"
	"ddpbatch/mpi/internal/engine"
	"ddpbatch/mpi/internal/shm"
)

// Barrier returns when every rank has called it.
func (c *Comm) Barrier(ctx context.Context) error {
	o := operation{kind: barrierCall}
	return c.run(ctx, &o)
}

// IBarrier is the non-blocking form of Barrier.
func (c *Comm) IBarrier(ctx context.Context) *Request {
	return c.request(ctx, &operation{kind: barrierCall})
}

var barrierDescriptor = descriptor{
	name: "barrier",
	algorithms: [2][]algorithm.Entry[runFunc]{
		entries(algorithm.Barriers(), func(run algorithm.BarrierFunc, p algorithm.Port, _ *buffers) error { return run(p) }),
	},
	shared: func(node *shm.Node, w nodeWaiter, fingerprint shm.Fingerprint, _ *buffers) error {
		return node.Barrier(w, fingerprint)
	},
}

// MonitoredBarrier is Barrier with a time-out of its own, after which rank 0 finds out which ranks are missing. Rank 0 then returns an
// AbsentError that names all of them. The others return an AbortError with the same text or, a second later, an AbsentError that names
// rank 0. MonitoredBarrier costs rank 0 one message to and one from each rank.
func (c *Comm) MonitoredBarrier(ctx context.Context, timeout time.Duration) error {
	if c.core.group == nil {
		return c.Barrier(ctx)
	}
	o := operation{kind: monitoredCall, timeout: timeout}
	return c.run(ctx, &o)
}

// IMonitoredBarrier is the non-blocking form of MonitoredBarrier.
func (c *Comm) IMonitoredBarrier(ctx context.Context, timeout time.Duration) *Request {
	if c.core.group == nil {
		return c.IBarrier(ctx)
	}
	return c.request(ctx, &operation{kind: monitoredCall, timeout: timeout})
}

// AbsentError names the ranks that did not call MonitoredBarrier in time.
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

// Unwrap returns ErrTimeout.
func (e *AbsentError) Unwrap() error { return ErrTimeout }

// extraWait is how much longer than rank 0 the others wait, so that rank 0 can tell them who is missing.
const extraWait = time.Second

// runMonitored is one rank's part of the barrier.
func (k *core) runMonitored(timeout time.Duration) error {
	if k.group.Rank() != 0 {
		sent, answer := k.port.Send(0, nil), k.port.Recv(0, nil)
		err := k.awaitArrivals(timeout+extraWait, func() bool { return k.port.ops[answer].Done() })
		if errors.Is(err, errNoAnswer) {
			return &AbsentError{Ranks: []int{0}, Timeout: timeout + extraWait}
		}
		if err != nil {
			return err
		}
		return algorithm.WaitAll(&k.port, sent, answer)
	}
	for rank := 1; rank < k.group.Size(); rank++ {
		k.port.Recv(rank, nil)
	}
	arrivals := k.port.ops[:k.port.used]
	err := k.awaitArrivals(timeout, func() bool { return !slices.ContainsFunc(arrivals, notDone) })
	if errors.Is(err, errNoAnswer) {
		if missing := absent(arrivals); len(missing) > 0 { // otherwise the last rank came just in time
			return &AbsentError{Ranks: missing, Timeout: timeout}
		}
	} else if err != nil {
		return err
	}
	for rank := 1; rank < k.group.Size(); rank++ {
		if err := k.group.Wait(k.port.ctx, arrivals[rank-1]); err != nil {
			return err
		}
		k.port.Send(rank, nil)
	}
	for _, op := range k.port.ops[:k.port.used] {
		if err := k.group.Wait(k.port.ctx, op); err != nil {
			return err
		}
	}
	return nil
}

// awaitArrivals waits until ready returns true. After timeout it returns errNoAnswer.
func (k *core) awaitArrivals(timeout time.Duration, ready func() bool) error {
	limited, cancel := context.WithTimeout(k.port.ctx, timeout)
	defer cancel()
	err := k.group.Watch(limited, ready)
	if err != nil && k.port.ctx.Err() == nil && limited.Err() != nil {
		return errNoAnswer
	}
	return err
}

func notDone(op *engine.Op) bool { return !op.Done() }

// absent returns the ranks whose message has not come. ops[i] is the receive from rank i+1.
func absent(ops []*engine.Op) []int {
	var ranks []int
	for i, op := range ops {
		if notDone(op) {
			ranks = append(ranks, i+1)
		}
	}
	return ranks
}
