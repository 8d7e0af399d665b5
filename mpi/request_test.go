package mpi

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"strings"
	"testing"

	"ddpbatch/internal/testkit"
)

// Requests may be waited for in any order and several times.
func TestRequestsMayBeAwaitedInAnyOrder(t *testing.T) {
	const calls = 1000
	everywhere(t, []int{1, 3}, func(ctx context.Context, c *Comm) error {
		bufs, requests := make([][1]int64, calls), make([]*Request, calls)
		for i := range calls {
			bufs[i][0] = int64(i)
			requests[i] = IAllReduce(ctx, c, bufs[i][:], Sum)
		}
		for _, i := range rand.Perm(calls) { // another order on each rank
			if err := errors.Join(requests[i].Wait(ctx), requests[i].Wait(ctx)); err != nil {
				return err
			}
			if !requests[i].Done() || bufs[i][0] != int64(i*c.Size()) {
				return fmt.Errorf("call %d: done %v, sum %d", i, requests[i].Done(), bufs[i][0])
			}
		}
		if s := requests[0].Status(); s != (Status{}) {
			return fmt.Errorf("a collective has the status %+v", s)
		}
		return nil
	})
}

// Done becomes true without a Wait, for collectives and for messages.
func TestRequestIsDoneWithoutAWait(t *testing.T) {
	for _, over := range transports {
		t.Run(over, func(t *testing.T) {
			w := newWorldOn(t, over, 2, nil)
			buf := make([]int32, 1)
			collective, message := w[0].IBarrier(t.Context()), IRecv(w[0], buf, 1, 4)
			if collective.Done() || message.Done() {
				t.Error("done before the other rank has come")
			}
			if err := errors.Join(w[1].Barrier(t.Context()), Send(t.Context(), w[1], []int32{9}, 0, 4)); err != nil {
				t.Fatal(err)
			}
			testkit.Eventually(t, "both are done", func() bool { return collective.Done() && message.Done() })
			if err := WaitAll(t.Context(), collective, message); err != nil || buf[0] != 9 ||
				message.Status() != (Status{Source: 1, Count: 1}) {
				t.Errorf("got %v, %v, %+v", err, buf, message.Status())
			}
		})
	}
}

// If the context of a Wait ends, its collective goes on and can still succeed.
func TestCancelledWaitLeavesItsCollectiveAlone(t *testing.T) {
	for _, over := range transports {
		t.Run(over, func(t *testing.T) {
			w := newWorldOn(t, over, 2, nil)
			x := []int32{1}
			r := IAllReduce(t.Context(), w[0], x, Sum)
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			if err := r.Wait(ended); !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
			if err := errors.Join(AllReduce(t.Context(), w[1], []int32{2}, Sum), r.Wait(t.Context())); err != nil || x[0] != 3 {
				t.Errorf("got %v, %v", x, err)
			}
		})
	}
}

// Requests that wait for their turn when the Comm breaks, or is closed, all end with that error.
func TestRequestsEndWithABrokenComm(t *testing.T) {
	for _, over := range transports {
		t.Run(over, func(t *testing.T) {
			w := newWorldOn(t, over, 2, nil)
			ctx, cancel := context.WithCancel(t.Context())
			var requests []*Request
			for range 10 {
				requests = append(requests, w[0].IBarrier(ctx))
			}
			cancel()
			for i, r := range requests {
				if err := r.Wait(t.Context()); !errors.Is(err, context.Canceled) || err != requests[0].Wait(t.Context()) {
					t.Errorf("request %d got %v", i, err)
				}
			}
			w = newWorldOn(t, over, 2, nil)
			r := w[0].IBarrier(t.Context())
			testkit.Within(t, testkit.Patience, func() { w[0].Close() })
			if err := r.Wait(t.Context()); !errors.Is(err, ErrClosed) {
				t.Errorf("closed: got %v", err)
			}
		})
	}
}

// Calls of several goroutines on one Comm take turns: each ends with the result of one call, not of parts of several.
func TestConcurrentCallsTakeTurns(t *testing.T) {
	const calls = 8
	for _, over := range transports {
		t.Run(over, func(t *testing.T) {
			w := newWorldOn(t, over, 2, nil)
			var sums [2][calls][3]int64
			must(t, testkit.Each(2, func(rank int) error {
				return errors.Join(testkit.Each(calls, func(i int) error {
					// Any calls of the two ranks may be paired. Each call adds its own power of two, so the sum shows which calls were
					// paired.
					own := int64(1) << (calls*rank + i)
					sums[rank][i] = [3]int64{own, own, own}
					return AllReduce(t.Context(), w[rank], sums[rank][i][:], Sum)
				})...)
			}))
			for i, sum := range sums[0] {
				if sum[1] != sum[0] || sum[2] != sum[0] {
					t.Errorf("call %d of rank 0 has parts of several: %v", i, sum)
				}
				theirs := sum[0] - 1<<i
				j := bits.TrailingZeros64(uint64(theirs)) - calls
				if j < 0 || j >= calls || theirs != 1<<(calls+j) {
					t.Errorf("call %d of rank 0 summed up %b", i, sum[0])
				} else if sums[1][j] != sum {
					t.Errorf("call %d of rank 0 has %b, call %d of rank 1 %b", i, sum, j, sums[1][j])
				}
			}
		})
	}
}

// A call that is canceled while it is queued names itself in its error, and does not affect the call that runs.
func TestCallGivesUpItsTurn(t *testing.T) {
	for name, call := range map[string]func(ctx context.Context, c *Comm) error{
		"all_reduce": func(ctx context.Context, c *Comm) error { return AllReduce(ctx, c, []int32{1}, Sum) },
		"new_group":  func(ctx context.Context, c *Comm) error { _, err := c.Dup(ctx); return err },
		"alloc":      func(ctx context.Context, c *Comm) error { _, err := Alloc[int32](ctx, c, 1); return err },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorldOn(t, "local", 2, nil)
			running := w[0].IBarrier(t.Context())
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := call(ctx, w[0]); err == nil || !strings.Contains(err.Error(), name+": canceled while queued") {
				t.Errorf("got %v", err)
			}
			if err := running.Wait(t.Context()); err == nil {
				t.Error("the barrier of one rank is over")
			}
		})
	}
}
