package mpi

import (
	"context"
	"errors"
	"strings"
	"testing"

	"ddpbatch/internal/testkit"
)

// Counts of two ranks that do not fit, where each knows its own alone, are told on both sides: at once, or at the next call where the
// sender had no more to wait for.
func TestRaggedCounts(t *testing.T) {
	calls := map[string]func(ctx context.Context, c *Comm) error{
		"gather": func(ctx context.Context, c *Comm) error {
			return GatherV(ctx, c, make([]int32, 4), make([]int32, 2+c.Rank()), []int{2, 2}, 0)
		},
		"scatter": func(ctx context.Context, c *Comm) error {
			return ScatterV(ctx, c, make([]int32, 2+c.Rank()), make([]int32, 4), []int{2, 2}, 0)
		},
		"all_to_all": func(ctx context.Context, c *Comm) error {
			return AllToAllV(ctx, c, make([]int32, 4), []int{2, 2}, make([]int32, 4+c.Rank()), []int{2 + c.Rank(), 2})
		},
	}
	for _, over := range transports {
		for name, call := range calls {
			t.Run(over+"/"+name, func(t *testing.T) {
				w := newWorldOn(t, over, 2, nil)
				errs := testkit.Each(2, func(rank int) error {
					if err := call(t.Context(), w[rank]); err != nil {
						return err
					}
					return w[rank].Barrier(t.Context())
				})
				for rank, err := range errs {
					if !errors.Is(err, ErrMismatch) || !strings.Contains(err.Error(), "bytes due from rank") {
						t.Errorf("rank %d got %v", rank, err)
					}
				}
			})
		}
	}
}

// The calls of their own lengths go on by themselves, too.
func TestRaggedByThemselves(t *testing.T) {
	everywhere(t, []int{1, 3}, func(ctx context.Context, c *Comm) error {
		size, rank := c.Size(), c.Rank()
		counts, total := make([]int, size), 0
		for i := range counts {
			counts[i] = i + 1
			total += i + 1
		}
		mine := make([]int32, counts[rank])
		for i := range mine {
			mine[i] = int32(10*rank + i)
		}
		want := make([]int32, 0, total)
		for r, n := range counts {
			for i := range n {
				want = append(want, int32(10*r+i))
			}
		}
		all, gathered, handed, sums := make([]int32, total), make([]int32, total), make([]int32, len(mine)), make([]int32, len(mine))
		swapped, back := make([]int32, size*len(mine)), make([]int, size)
		for i := range back {
			back[i] = len(mine)
		}
		err := WaitAll(ctx,
			IAllGatherV(ctx, c, all, mine, counts),
			IGatherV(ctx, c, gathered, mine, counts, 0),
			IScatterV(ctx, c, handed, want, counts, 0),
			IReduceScatterV(ctx, c, sums, want, counts, Max),
			IAllToAllV(ctx, c, swapped, back, want, counts),
			c.IMonitoredBarrier(ctx, testkit.Patience),
		)
		if err != nil {
			return err
		}
		if rank != 0 {
			copy(gathered, want) // root's alone is filled
		}
		for name, pair := range map[string][2][]int32{"all_gather": {all, want}, "gather": {gathered, want}, "scatter": {handed, mine}, "reduce_scatter": {sums, mine}} {
			if string(bytesOf(pair[0])) != string(bytesOf(pair[1])) {
				t.Errorf("rank %d, %s: got %v, want %v", rank, name, pair[0], pair[1])
			}
		}
		for i, v := range swapped {
			if v != mine[i%len(mine)] {
				t.Errorf("rank %d, all_to_all: got %v, want %v from everyone", rank, swapped, mine)
				break
			}
		}
		return nil
	})
}
