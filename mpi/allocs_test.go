package mpi

import (
	"context"
	"runtime"
	"testing"

	"ddpbatch/internal/testkit"
)

// In steady state no blocking call allocates, on any rank. All mallocs of the process are counted, so those of links
// and attendants, too, and what the runtime does in the meantime: that only adds, so the least of several counts decides.
func TestNoAllocations(t *testing.T) { // without the race detector
	if raceEnabled {
		t.Skip("counts allocations: the race detector makes some of its own")
	}
	const n = 50_000
	counts := []int{n / 2, n / 2}
	tests := []struct {
		name string
		do   func(ctx context.Context, c *Comm, out, in []float32) error
	}{
		{"all_reduce", func(ctx context.Context, c *Comm, out, _ []float32) error { return AllReduce(ctx, c, out, Sum) }},
		{"all_reduce_small", func(ctx context.Context, c *Comm, out, _ []float32) error { return AllReduce(ctx, c, out[:2], Avg) }},
		{"reduce", func(ctx context.Context, c *Comm, out, _ []float32) error { return Reduce(ctx, c, out, 1, Max) }},
		{"reduce_scatter", func(ctx context.Context, c *Comm, out, in []float32) error {
			return ReduceScatter(ctx, c, out[:n/2], in, Sum)
		}},
		{"reduce_scatter_v", func(ctx context.Context, c *Comm, out, in []float32) error {
			return ReduceScatterV(ctx, c, out[:n/2], in, counts, Sum)
		}},
		{"scan", func(ctx context.Context, c *Comm, out, _ []float32) error { return Scan(ctx, c, out, Sum) }},
		{"exscan", func(ctx context.Context, c *Comm, out, _ []float32) error { return Exscan(ctx, c, out, Sum) }},
		{"broadcast", func(ctx context.Context, c *Comm, out, _ []float32) error { return Broadcast(ctx, c, out, 0) }},
		{"all_gather", func(ctx context.Context, c *Comm, out, in []float32) error { return AllGather(ctx, c, out, in[:n/2]) }},
		{"all_gather_v", func(ctx context.Context, c *Comm, out, in []float32) error {
			return AllGatherV(ctx, c, out, in[:n/2], counts)
		}},
		{"gather", func(ctx context.Context, c *Comm, out, in []float32) error { return Gather(ctx, c, out, in[:n/2], 0) }},
		{"gather_v", func(ctx context.Context, c *Comm, out, in []float32) error {
			return GatherV(ctx, c, out, in[:n/2], counts, 0)
		}},
		{"scatter", func(ctx context.Context, c *Comm, out, in []float32) error { return Scatter(ctx, c, out[:n/2], in, 0) }},
		{"all_to_all", func(ctx context.Context, c *Comm, out, in []float32) error { return AllToAll(ctx, c, out, in) }},
		{"all_to_all_v", func(ctx context.Context, c *Comm, out, in []float32) error {
			return AllToAllV(ctx, c, out, counts, in, counts)
		}},
		{"barrier", func(ctx context.Context, c *Comm, _, _ []float32) error { return c.Barrier(ctx) }},
		{"messages", func(ctx context.Context, c *Comm, out, in []float32) error {
			if c.Rank() == 0 {
				if err := Send(ctx, c, in, 1, 3); err != nil {
					return err
				}
				_, err := Recv(ctx, c, out, 1, 3)
				return err
			}
			if _, err := Recv(ctx, c, out, AnySource, 3); err != nil {
				return err
			}
			return Send(ctx, c, in, 0, 3)
		}},
	}
	for _, over := range realTransports {
		w := newWorldOn(t, over, 2, nil)
		var out, in [2][]float32
		for rank := range out {
			out[rank], in[rank] = make([]float32, n), make([]float32, n)
		}
		for _, tt := range tests {
			t.Run(over+"/"+tt.name, func(t *testing.T) {
				// The runtime and the test itself have a few; one for each call of one rank would be 200, in every try.
				const calls, bound, tries = 200, 200 / 4, 5
				var mallocs []uint64
				for len(mallocs) < tries {
					mallocs = append(mallocs, countMallocs(t, func(rank int, n int) error {
						for range n {
							if err := tt.do(t.Context(), w[rank], out[rank], in[rank]); err != nil {
								return err
							}
						}
						return nil
					}, calls))
					if mallocs[len(mallocs)-1] <= bound {
						return
					}
				}
				t.Errorf("%v allocations in %d calls of two ranks, never %d or fewer", mallocs, calls, bound)
			})
		}
	}
}

// countMallocs has two ranks make n calls, after some that warm up, and counts the process's allocations.
func countMallocs(t *testing.T, run func(rank, n int) error, n int) uint64 {
	t.Helper()
	start, warm := make(chan struct{}), make(chan error, 2)
	done := make(chan []error, 1)
	go func() {
		done <- testkit.Each(2, func(rank int) error {
			err := run(rank, 20)
			warm <- err
			if err != nil {
				return err
			}
			<-start
			return run(rank, n)
		})
	}()
	for range 2 {
		if err := <-warm; err != nil {
			t.Fatal(err)
		}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	close(start)
	must(t, <-done)
	runtime.ReadMemStats(&after)
	return after.Mallocs - before.Mallocs
}
