package mpi

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/testkit"
)

// misuse is a call of all ranks but one, which makes another.
type misuse struct {
	name          string
	common, odd   func(ctx context.Context, c *Comm) error
	common1, odd1 string // how the error shows them
}

// misuses are those of reference/collectives.md 3.1, and their like.
var misuses = []misuse{
	{"count", summing(4), summing(8), "all_reduce #2 float32 x 4 sum", "all_reduce #2 float32 x 8 sum"},
	{"count_zero", summing(4), summing(0), "all_reduce #2 float32 x 4 sum", "all_reduce #2 float32 x 0 sum"},
	{"count_large", summing(300_000), summing(300_001), "all_reduce #2 float32 x 300000 sum", "all_reduce #2 float32 x 300001 sum"},
	{
		"type", summing(4),
		func(ctx context.Context, c *Comm) error { return AllReduce(ctx, c, make([]int32, 4), Sum) },
		"all_reduce #2 float32 x 4 sum", "all_reduce #2 int32 x 4 sum",
	},
	{
		"operation", summing(4),
		func(ctx context.Context, c *Comm) error { return AllReduce(ctx, c, make([]float32, 4), Max) },
		"all_reduce #2 float32 x 4 sum", "all_reduce #2 float32 x 4 max",
	},
	{
		"algorithm", func(ctx context.Context, c *Comm) error { return summing(4)(ctx, c.Using("star")) },
		func(ctx context.Context, c *Comm) error { return summing(4)(ctx, c.Using("direct")) },
		"all_reduce #2 float32 x 4 sum by star", "all_reduce #2 float32 x 4 sum by direct",
	},
	{"all_reduce_broadcast", summing(10), broadcasting(10, 0), "all_reduce #2 float32 x 10 sum", "broadcast #2 float32 x 10 from rank 0"},
	{"broadcast_all_reduce", broadcasting(10, 0), summing(10), "broadcast #2 float32 x 10 from rank 0", "all_reduce #2 float32 x 10 sum"},
	{"all_reduce_barrier", summing(10), meeting, "all_reduce #2 float32 x 10 sum", "barrier #2"},
	{"barrier_broadcast", meeting, broadcasting(1, 0), "barrier #2", "broadcast #2 float32 x 1 from rank 0"},
	{"broadcast_barrier", broadcasting(1, 0), meeting, "broadcast #2 float32 x 1 from rank 0", "barrier #2"},
	{"broadcast_root", broadcasting(4, 0), broadcasting(4, 1), "broadcast #2 float32 x 4 from rank 0", "broadcast #2 float32 x 4 from rank 1"},
	{"broadcast_count", broadcasting(4, 0), broadcasting(5, 0), "broadcast #2 float32 x 4 from rank 0", "broadcast #2 float32 x 5 from rank 0"},
	{"reduce_root", reducing(4, 1), reducing(4, 0), "reduce #2 float32 x 4 sum to rank 1", "reduce #2 float32 x 4 sum to rank 0"},
	{"reduce_count", reducing(4, 0), reducing(3, 0), "reduce #2 float32 x 4 sum to rank 0", "reduce #2 float32 x 3 sum to rank 0"},
	{"reduce_all_reduce", reducing(4, 0), summing(4), "reduce #2 float32 x 4 sum to rank 0", "all_reduce #2 float32 x 4 sum"},
	{
		"scan_exscan",
		func(ctx context.Context, c *Comm) error { return Scan(ctx, c, make([]int8, 4), BOr) },
		func(ctx context.Context, c *Comm) error { return Exscan(ctx, c, make([]int8, 4), BOr) },
		"scan #2 int8 x 4 bor", "exscan #2 int8 x 4 bor",
	},
	{"gather_root", gathering(3, 0), gathering(3, 1), "gather #2 float32 x 3 to rank 0", "gather #2 float32 x 3 to rank 1"},
	{"gather_count", gathering(3, 0), gathering(2, 0), "gather #2 float32 x 3 to rank 0", "gather #2 float32 x 2 to rank 0"},
	{"gather_scatter", gathering(3, 0), scattering(3, 0), "gather #2 float32 x 3 to rank 0", "scatter #2 float32 x 3 from rank 0"},
	{"scatter_root", scattering(3, 0), scattering(3, 1), "scatter #2 float32 x 3 from rank 0", "scatter #2 float32 x 3 from rank 1"},
	{"scatter_count", scattering(3, 0), scattering(2, 0), "scatter #2 float32 x 3 from rank 0", "scatter #2 float32 x 2 from rank 0"},
	{
		"all_to_all_all_gather",
		func(ctx context.Context, c *Comm) error {
			return AllToAll(ctx, c, make([]uint8, 2*c.Size()), make([]uint8, 2*c.Size()))
		},
		func(ctx context.Context, c *Comm) error {
			return AllGather(ctx, c, make([]uint8, 2*c.Size()), make([]uint8, 2))
		},
		"all_to_all #2 uint8 x ", "all_gather #2 uint8 x ",
	},
}

func summing(n int) func(ctx context.Context, c *Comm) error {
	return func(ctx context.Context, c *Comm) error { return AllReduce(ctx, c, make([]float32, n), Sum) }
}

func broadcasting(n, root int) func(ctx context.Context, c *Comm) error {
	return func(ctx context.Context, c *Comm) error { return Broadcast(ctx, c, make([]float32, n), root) }
}

func reducing(n, root int) func(ctx context.Context, c *Comm) error {
	return func(ctx context.Context, c *Comm) error { return Reduce(ctx, c, make([]float32, n), root, Sum) }
}

func gathering(n, root int) func(ctx context.Context, c *Comm) error {
	return func(ctx context.Context, c *Comm) error {
		return Gather(ctx, c, make([]float32, n*c.Size()), make([]float32, n), root)
	}
}

func scattering(n, root int) func(ctx context.Context, c *Comm) error {
	return func(ctx context.Context, c *Comm) error {
		return Scatter(ctx, c, make([]float32, n), make([]float32, n*c.Size()), root)
	}
}

func meeting(ctx context.Context, c *Comm) error { return c.Barrier(ctx) }

// The last rank makes the odd call. Every rank must get an error that shows both, long before the time-out.
func TestMisuse(t *testing.T) {
	for _, over := range transports {
		for _, tt := range misuses {
			for _, size := range sizesOn(over, []int{2, 3, 8}) {
				t.Run(over+"/"+tt.name+"/"+rankName(size), func(t *testing.T) { testMisuse(t, over, tt, size) })
			}
		}
	}
}

func testMisuse(t *testing.T, over string, tt misuse, size int) {
	w := newWorldOn(t, over, size, nil)
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

// A call of a second goroutine waits for its turn.
func TestConcurrentCalls(t *testing.T) {
	w := newWorld(t, 2, nil)
	must(t, testkit.Each(2, func(rank int) error {
		errs := testkit.Each(8, func(int) error { return AllReduce(t.Context(), w[rank], []int64{1}, Sum) })
		return errors.Join(errs...)
	}))
}
