package mpi

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/testkit"
)

func TestUsersOperationsDifferByName(t *testing.T) {
	for _, over := range transports {
		t.Run(over, func(t *testing.T) {
			w := newWorldOn(t, over, 2, nil)
			for rank, err := range testkit.Each(2, func(rank int) error {
				op := NewOp([]string{"op38", "op85"}[rank], true,
					func(dst, left, right []int32) { copy(dst, [][]int32{left, right}[rank]) })
				return AllReduce(t.Context(), w[rank], []int32{int32(rank)}, op)
			}) {
				if !errors.Is(err, ErrMismatch) {
					t.Errorf("rank %d got %v", rank, err)
				}
			}
		})
	}
}

// misuse is a pair of calls that do not match: all ranks but one make the common call, and that one makes the odd call.
type misuse struct {
	name, of      string // of is the collective of both calls, or empty
	common, odd   func(ctx context.Context, c *Comm) error
	common1, odd1 string // how the error shows them
}

// misuses are calls that do not match. PyTorch 1.13.1 with Gloo answers them by wrong values, an abort, or a time-out that names no rank.
var misuses = []misuse{
	{"count", "all_reduce", summing(4), summing(8), "all_reduce #2 float32 x 4 sum", "all_reduce #2 float32 x 8 sum"},
	{"count_zero", "all_reduce", summing(4), summing(0), "all_reduce #2 float32 x 4 sum", "all_reduce #2 float32 x 0 sum"},
	{"count_large", "all_reduce", summing(300_000), summing(300_001), "all_reduce #2 float32 x 300000 sum",
		"all_reduce #2 float32 x 300001 sum"},
	{
		"type", "all_reduce", summing(4),
		func(ctx context.Context, c *Comm) error { return AllReduce(ctx, c, make([]int32, 4), Sum) },
		"all_reduce #2 float32 x 4 sum", "all_reduce #2 int32 x 4 sum",
	},
	{
		"operation", "all_reduce", summing(4),
		func(ctx context.Context, c *Comm) error { return AllReduce(ctx, c, make([]float32, 4), Max) },
		"all_reduce #2 float32 x 4 sum", "all_reduce #2 float32 x 4 max",
	},
	{
		"algorithm", "", func(ctx context.Context, c *Comm) error { return summing(4)(ctx, c.Using("star")) },
		func(ctx context.Context, c *Comm) error { return summing(4)(ctx, c.Using("direct")) },
		"all_reduce #2 float32 x 4 sum by star", "all_reduce #2 float32 x 4 sum by direct",
	},
	{"all_reduce_broadcast", "", summing(10), broadcasting(10, 0), "all_reduce #2 float32 x 10 sum",
		"broadcast #2 float32 x 10 from rank 0"},
	{"broadcast_all_reduce", "", broadcasting(10, 0), summing(10), "broadcast #2 float32 x 10 from rank 0",
		"all_reduce #2 float32 x 10 sum"},
	{"all_reduce_barrier", "", summing(10), enteringBarrier, "all_reduce #2 float32 x 10 sum", "barrier #2"},
	{"barrier_broadcast", "", enteringBarrier, broadcasting(1, 0), "barrier #2", "broadcast #2 float32 x 1 from rank 0"},
	{"broadcast_barrier", "", broadcasting(1, 0), enteringBarrier, "broadcast #2 float32 x 1 from rank 0", "barrier #2"},
	{"broadcast_root", "broadcast", broadcasting(4, 0), broadcasting(4, 1), "broadcast #2 float32 x 4 from rank 0",
		"broadcast #2 float32 x 4 from rank 1"},
	{"broadcast_count", "broadcast", broadcasting(4, 0), broadcasting(5, 0), "broadcast #2 float32 x 4 from rank 0",
		"broadcast #2 float32 x 5 from rank 0"},
	{"reduce_root", "reduce", reducing(4, 1), reducing(4, 0), "reduce #2 float32 x 4 sum to rank 1", "reduce #2 float32 x 4 sum to rank 0"},
	{"reduce_count", "reduce", reducing(4, 0), reducing(3, 0), "reduce #2 float32 x 4 sum to rank 0",
		"reduce #2 float32 x 3 sum to rank 0"},
	{"reduce_all_reduce", "", reducing(4, 0), summing(4), "reduce #2 float32 x 4 sum to rank 0", "all_reduce #2 float32 x 4 sum"},
	{
		"scan_exscan", "",
		func(ctx context.Context, c *Comm) error { return Scan(ctx, c, make([]int8, 4), BOr) },
		func(ctx context.Context, c *Comm) error { return Exscan(ctx, c, make([]int8, 4), BOr) },
		"scan #2 int8 x 4 bor", "exscan #2 int8 x 4 bor",
	},
	{"gather_root", "gather", gathering(3, 0), gathering(3, 1), "gather #2 float32 x 3 to rank 0", "gather #2 float32 x 3 to rank 1"},
	{
		"gather_root_long", "gather",
		gathering(20_000, 1), gathering(20_000, 0), "gather #2 float32 x 20000 to rank 1", "gather #2 float32 x 20000 to rank 0",
	},
	{
		"gather_v_root_long", "gather_v",
		gatheringV(20_000, 1), gatheringV(20_000, 0), "gather #2 float32 to rank 1", "gather #2 float32 to rank 0",
	},
	{
		"scatter_root_long", "scatter",
		scattering(20_000, 0), scattering(20_000, 1), "scatter #2 float32 x 20000 from rank 0", "scatter #2 float32 x 20000 from rank 1",
	},
	{
		"scatter_v_root_long", "scatter_v",
		scatteringV(20_000, 0), scatteringV(20_000, 1), "scatter #2 float32 from rank 0", "scatter #2 float32 from rank 1",
	},
	{"gather_count", "gather", gathering(3, 0), gathering(2, 0), "gather #2 float32 x 3 to rank 0", "gather #2 float32 x 2 to rank 0"},
	{"gather_scatter", "", gathering(3, 0), scattering(3, 0), "gather #2 float32 x 3 to rank 0", "scatter #2 float32 x 3 from rank 0"},
	{"gather_v_root", "gather_v", gatheringV(3, 0), gatheringV(3, 1), "gather #2 float32 to rank 0", "gather #2 float32 to rank 1"},
	{"gather_gather_v", "", gathering(3, 0), gatheringV(3, 0), "gather #2 float32 x 3 to rank 0", "gather #2 float32 to rank 0"},
	{"scatter_v_root", "scatter_v", scatteringV(3, 0), scatteringV(3, 1), "scatter #2 float32 from rank 0",
		"scatter #2 float32 from rank 1"},
	{"gather_v_scatter_v", "", gatheringV(3, 0), scatteringV(3, 0), "gather #2 float32 to rank 0", "scatter #2 float32 from rank 0"},
	{"scatter_root", "scatter", scattering(3, 0), scattering(3, 1), "scatter #2 float32 x 3 from rank 0",
		"scatter #2 float32 x 3 from rank 1"},
	{"scatter_count", "scatter", scattering(3, 0), scattering(2, 0), "scatter #2 float32 x 3 from rank 0",
		"scatter #2 float32 x 2 from rank 0"},
	{
		"all_to_all_all_gather", "",
		func(ctx context.Context, c *Comm) error {
			return AllToAll(ctx, c, make([]uint8, 2*c.Size()), make([]uint8, 2*c.Size()))
		},
		func(ctx context.Context, c *Comm) error {
			return AllGather(ctx, c, make([]uint8, 2*c.Size()), make([]uint8, 2))
		},
		"all_to_all #2 uint8 x ", "all_gather #2 uint8 x ",
	},
	{
		"scan_count", "scan",
		func(ctx context.Context, c *Comm) error { return Scan(ctx, c, make([]float64, 4), Sum) },
		func(ctx context.Context, c *Comm) error { return Scan(ctx, c, make([]float64, 5), Sum) },
		"scan #2 float64 x 4 sum", "scan #2 float64 x 5 sum",
	},
	{
		"reduce_scatter_operation", "reduce_scatter", scattered(Sum), scattered(Max),
		"reduce_scatter #2 float32 x ", "reduce_scatter #2 float32 x ",
	},
	{
		"all_gather_type", "all_gather",
		func(ctx context.Context, c *Comm) error {
			return AllGather(ctx, c, make([]float32, 2*c.Size()), make([]float32, 2))
		},
		func(ctx context.Context, c *Comm) error {
			return AllGather(ctx, c, make([]uint32, 2*c.Size()), make([]uint32, 2))
		},
		"all_gather #2 float32 x ", "all_gather #2 uint32 x ",
	},
	{
		"all_gather_counts", "all_gather_v", allGatheringV(1), allGatheringV(2),
		"all_gather #2 int64 x ", "all_gather #2 int64 x ",
	},
	{
		"all_to_all_count", "all_to_all",
		func(ctx context.Context, c *Comm) error {
			return AllToAll(ctx, c, make([]int16, 2*c.Size()), make([]int16, 2*c.Size()))
		},
		func(ctx context.Context, c *Comm) error {
			return AllToAll(ctx, c, make([]int16, 3*c.Size()), make([]int16, 3*c.Size()))
		},
		"all_to_all #2 int16 x ", "all_to_all #2 int16 x ",
	},
	{
		"barrier_monitored", "", enteringBarrier,
		func(ctx context.Context, c *Comm) error { return c.MonitoredBarrier(ctx, testkit.Patience) },
		"barrier #2", "monitored_barrier #2",
	},
}

func scattered(op Op) func(ctx context.Context, c *Comm) error {
	return func(ctx context.Context, c *Comm) error {
		return ReduceScatter(ctx, c, make([]float32, 2), make([]float32, 2*c.Size()), op)
	}
}

// In allGatheringV, rank 0 gives n of 3 elements, and the last rank gives the others.
func allGatheringV(n int) func(ctx context.Context, c *Comm) error {
	return func(ctx context.Context, c *Comm) error {
		counts := make([]int, c.Size())
		counts[0], counts[c.Size()-1] = n, 3-n
		return AllGatherV(ctx, c, make([]int64, 3), make([]int64, counts[c.Rank()]), counts)
	}
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

// gatheringV is gathering with counts.
func gatheringV(n, root int) func(ctx context.Context, c *Comm) error {
	return func(ctx context.Context, c *Comm) error {
		counts := slices.Repeat([]int{n}, c.Size())
		return GatherV(ctx, c, make([]float32, n*c.Size()), make([]float32, n), counts, root)
	}
}

func scatteringV(n, root int) func(ctx context.Context, c *Comm) error {
	return func(ctx context.Context, c *Comm) error {
		counts := slices.Repeat([]int{n}, c.Size())
		return ScatterV(ctx, c, make([]float32, n), make([]float32, n*c.Size()), counts, root)
	}
}

func enteringBarrier(ctx context.Context, c *Comm) error { return c.Barrier(ctx) }

// If the last rank makes the odd call, every rank gets an error that shows both calls, long before the time-out.
func TestEveryRankSeesAMisuse(t *testing.T) {
	for _, over := range transports {
		for _, tt := range misuses {
			for _, size := range sizesOn(over, []int{2, 3, 8}) {
				t.Run(over+"/"+tt.name+"/"+rankName(size), func(t *testing.T) {
					promptly(t, func() time.Duration { return tt.test(t, newWorldOn(t, over, size, nil), thenBarrier) })
				})
			}
		}
	}
}

func TestMisuseIsSeenWithEveryAlgorithm(t *testing.T) { // without the race detector
	free := func(cfg *InitConfig) { cfg.Config.Deterministic = false }
	for _, over := range someTransports() {
		for _, size := range sampleOf(over, []int{2, 3, 4}) {
			for _, tt := range misuses {
				for _, name := range namesOn(over, size, tt.of) {
					by := tt
					by.common = func(ctx context.Context, c *Comm) error { return tt.common(ctx, c.Using(name)) }
					by.odd = func(ctx context.Context, c *Comm) error { return tt.odd(ctx, c.Using(name)) }
					t.Run(over+"/"+tt.name+"/"+name+"/"+rankName(size), func(t *testing.T) {
						promptly(t, func() time.Duration { return by.test(t, newWorldOn(t, over, size, free), thenBarrier) })
					})
				}
			}
		}
	}
}

// Ranks that leave the mismatched calls early, and make no further call, get the error from Close. Close waits for the ranks that they have
// not heard from. Of two ranks, each waits for the other. With shared memory, each waits for all.
func TestCloseShowsAMisuse(t *testing.T) {
	for _, over := range transports {
		sizes := []int{2}
		if over == "shm" {
			sizes = []int{2, 3}
		}
		for _, tt := range misuses {
			for _, size := range sizes {
				if size > 2 && !tt.shared() {
					continue
				}
				t.Run(over+"/"+tt.name+"/"+rankName(size), func(t *testing.T) {
					promptly(t, func() time.Duration { return tt.test(t, newWorldOn(t, over, size, nil), (*Comm).Close) })
				})
			}
		}
	}
}

// shared reports whether both calls go through shared memory if the ranks share any.
func (tt misuse) shared() bool {
	for _, text := range []string{tt.common1, tt.odd1} {
		kind, _, _ := strings.Cut(text, " ")
		if !slices.ContainsFunc(collectives[:], func(d descriptor) bool { return d.name == kind && d.shared != nil }) {
			return false
		}
	}
	return tt.name != "algorithm" // its calls name algorithms that do not use shared memory
}

func thenBarrier(c *Comm) error { return c.Barrier(context.Background()) }

// test makes the mismatched calls, and then calls then. It returns the time from the last rank's call until all ranks had their errors.
func (tt misuse) test(t *testing.T, w []*Comm, then func(c *Comm) error) time.Duration {
	size := len(w)
	must(t, testkit.Each(size, func(rank int) error { return w[rank].Barrier(t.Context()) }))
	var s stopwatch
	errs := testkit.Each(size, func(rank int) error {
		f := tt.common
		if rank == size-1 {
			f = tt.odd
		}
		s.called()
		if err := f(t.Context(), w[rank]); err != nil {
			return err
		}
		// A rank that did not wait for the odd one gets the error in its next call, which the error may show in place of the first.
		return then(w[rank])
	})
	took := s.sinceLast()
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
	return took
}

// If both ranks call Broadcast as the root, both calls return. The next call, or Close, returns the error.
func TestBothSidesSeeAMismatchOfRoots(t *testing.T) {
	for _, over := range transports {
		for name, then := range map[string]func(c *Comm) error{"barrier": thenBarrier, "close": (*Comm).Close} {
			t.Run(over+"/"+name, func(t *testing.T) {
				w := newWorldOn(t, over, 2, nil)
				errs := testkit.Each(2, func(rank int) error {
					if err := Broadcast(t.Context(), w[rank], []float32{1}, rank); err != nil {
						return err
					}
					return then(w[rank])
				})
				for rank, err := range errs {
					const want = "broadcast #1 float32 x 1 from rank 0, rank 1 called broadcast #1 float32 x 1 from rank 1"
					if !errors.Is(err, ErrMismatch) || !strings.Contains(err.Error(), want) {
						t.Errorf("rank %d got %v", rank, err)
					}
				}
			})
		}
	}
}
