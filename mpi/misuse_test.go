package mpi

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/testkit"
)

// The misuses of reference/collectives.md §3.1. In each world all ranks but the last make the
// common call, and the last another one. Every rank must get an error that shows
// both, long before the time-out.
func TestMisuse(t *testing.T) {
	type call func(ctx context.Context, c *Comm) error
	sum := func(n int) call {
		return func(ctx context.Context, c *Comm) error { return AllReduce(ctx, c, make([]float32, n), Sum) }
	}
	broadcast := func(n, root int) call {
		return func(ctx context.Context, c *Comm) error { return Broadcast(ctx, c, make([]float32, n), root) }
	}
	barrier := func(ctx context.Context, c *Comm) error { return c.Barrier(ctx) }
	tests := []struct {
		name          string
		common, odd   call
		common1, odd1 string // what the error shows, after the call's number
	}{
		{"count", sum(4), sum(8), "all_reduce #2 float32 x 4 sum", "all_reduce #2 float32 x 8 sum"},
		{"count_zero", sum(4), sum(0), "all_reduce #2 float32 x 4 sum", "all_reduce #2 float32 x 0 sum"},
		{"count_large", sum(300_000), sum(300_001), "all_reduce #2 float32 x 300000 sum", "all_reduce #2 float32 x 300001 sum"},
		{
			"type", sum(4),
			func(ctx context.Context, c *Comm) error { return AllReduce(ctx, c, make([]int32, 4), Sum) },
			"all_reduce #2 float32 x 4 sum", "all_reduce #2 int32 x 4 sum",
		},
		{
			"operation", sum(4),
			func(ctx context.Context, c *Comm) error { return AllReduce(ctx, c, make([]float32, 4), Max) },
			"all_reduce #2 float32 x 4 sum", "all_reduce #2 float32 x 4 max",
		},
		{"all_reduce_broadcast", sum(10), broadcast(10, 0), "all_reduce #2 float32 x 10 sum", "broadcast #2 float32 x 10 from rank 0"},
		{"broadcast_all_reduce", broadcast(10, 0), sum(10), "broadcast #2 float32 x 10 from rank 0", "all_reduce #2 float32 x 10 sum"},
		{"all_reduce_barrier", sum(10), barrier, "all_reduce #2 float32 x 10 sum", "barrier #2"},
		{"barrier_broadcast", barrier, broadcast(1, 0), "barrier #2", "broadcast #2 float32 x 1 from rank 0"},
		{"broadcast_barrier", broadcast(1, 0), barrier, "broadcast #2 float32 x 1 from rank 0", "barrier #2"},
		{"root", broadcast(4, 0), broadcast(4, 1), "broadcast #2 float32 x 4 from rank 0", "broadcast #2 float32 x 4 from rank 1"},
		{"broadcast_count", broadcast(4, 0), broadcast(5, 0), "broadcast #2 float32 x 4 from rank 0", "broadcast #2 float32 x 5 from rank 0"},
	}
	for _, tt := range tests {
		for _, size := range []int{2, 3, 4, 8} {
			t.Run(tt.name+"/"+rankName(size), func(t *testing.T) {
				w := newWorld(t, size, nil)
				must(t, testkit.Each(size, func(rank int) error { return w[rank].Barrier(t.Context()) }))
				begin := time.Now()
				errs := testkit.Each(size, func(rank int) error {
					f := tt.common
					if rank == size-1 {
						f = tt.odd
					}
					if err := f(t.Context(), w[rank]); err != nil {
						return err
					}
					// A rank that had nothing to hear from the odd one is told at its next
					// call, which then may be the one that is shown.
					return w[rank].Barrier(t.Context())
				})
				if took := time.Since(begin); took > testkit.Moment {
					t.Errorf("took %v", took)
				}
				for rank, err := range errs {
					if !errors.Is(err, ErrMismatch) {
						t.Errorf("rank %d got %v", rank, err)
						continue
					}
					common := strings.Contains(err.Error(), "called "+tt.common1) || strings.Contains(err.Error(), "called barrier #3")
					if !common || !strings.Contains(err.Error(), "called "+tt.odd1) {
						t.Errorf("rank %d got %v; want %q and %q", rank, err, tt.common1, tt.odd1)
					}
				}
			})
		}
	}
}

// The two sides of a mismatch do not need a second call to find out.
func TestMismatchInOneCall(t *testing.T) {
	w := newWorld(t, 2, nil)
	errs := testkit.Each(2, func(rank int) error { return Broadcast(t.Context(), w[rank], []float32{1}, rank) })
	for rank, err := range errs {
		const want = "broadcast #1 float32 x 1 from rank 0, rank 1 called broadcast #1 float32 x 1 from rank 1"
		if !errors.Is(err, ErrMismatch) || !strings.Contains(err.Error(), want) {
			t.Errorf("rank %d got %v", rank, err)
		}
	}
}

// One rank calls once more than the others, which have left.
func TestOneCallMore(t *testing.T) {
	w := newWorld(t, 3, nil)
	errs := testkit.Each(3, func(rank int) error {
		if err := w[rank].Barrier(t.Context()); err != nil {
			return err
		}
		if rank > 0 {
			return w[rank].Close()
		}
		return w[0].Barrier(t.Context())
	})
	if !errors.Is(errs[0], ErrLeft) || !strings.Contains(errs[0].Error(), "barrier #2: rank ") || !strings.Contains(errs[0].Error(), "it has left the group after call #1") {
		t.Errorf("got %v", errs[0])
	}
	must(t, errs[1:])
}

func TestWrongArguments(t *testing.T) {
	tests := []struct {
		name string
		call func(ctx context.Context, c *Comm) error
		text string
	}{
		{"op_0", func(ctx context.Context, c *Comm) error { return AllReduce(ctx, c, []int32{1}, 0) }, "no reduce operation 0"},
		{"op_4", func(ctx context.Context, c *Comm) error { return AllReduce(ctx, c, []int32{1}, 4) }, "no reduce operation 4"},
		{"root_-1", func(ctx context.Context, c *Comm) error { return Broadcast(ctx, c, []int32{1}, -1) }, "no rank -1 to be the root"},
		{"root_2", func(ctx context.Context, c *Comm) error { return Broadcast(ctx, c, []int32{1}, 2) }, "ranks go from 0 to 1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, 2, nil)
			errs := testkit.Each(2, func(rank int) error {
				if rank == 0 {
					return tt.call(t.Context(), w[0])
				}
				return w[1].Barrier(t.Context()) // is told, and does not wait
			})
			if errs[0] == nil || !strings.Contains(errs[0].Error(), tt.text) {
				t.Errorf("rank 0 got %v, want %q", errs[0], tt.text)
			}
			if !errors.Is(errs[1], ErrAborted) || !strings.Contains(errs[1].Error(), tt.text) {
				t.Errorf("rank 1 got %v, want %q", errs[1], tt.text)
			}
		})
	}
	if err := AllReduce(t.Context(), Self(), []int32{1}, 9); err == nil {
		t.Error("a world of one accepts operation 9")
	}
}

func TestConcurrentUsePanics(t *testing.T) {
	w := newWorld(t, 2, nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- w[0].Barrier(ctx) }()
	testkit.Eventually(t, "the barrier has begun", w[0].busy.Load)
	for name, f := range map[string]func(){
		"barrier": func() { w[0].Barrier(ctx) },
		"close":   func() { w[0].Close() },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
	cancel()
	<-done
}
