package mpi

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// coll4 and coll5: a 10 x 10 table's rows are dealt out, a few to each rank and the rest to the last, and gathered again.
func mpichRows(ctx context.Context, c *Comm) error {
	const rows, columns = 30, 10
	rank, size := c.Rank(), c.Size()
	counts := slices.Repeat([]int{rows / size * columns}, size)
	counts[size-1] += rows % size * columns
	table := make([]int32, rows*columns)
	for i := range table {
		table[i] = int32(i)
	}
	mine := table[before(counts, rank):][:counts[rank]]
	for root := range size {
		err := byEach(c, "scatter_v", func(c *Comm) error {
			out := make([]int32, counts[rank])
			if rank == root {
				return errors.Join(ScatterV(ctx, c, out, table, counts, root), equal(out, mine))
			}
			return errors.Join(ScatterV(ctx, c, out, nil, nil, root), equal(out, mine))
		})
		if err != nil {
			return fmt.Errorf("scatter from %d: %w", root, err)
		}
		err = byEach(c, "gather_v", func(c *Comm) error {
			if rank != root {
				return GatherV(ctx, c, nil, mine, nil, root)
			}
			out := make([]int32, rows*columns)
			return errors.Join(GatherV(ctx, c, out, mine, counts, root), equal(out, table))
		})
		if err != nil {
			return fmt.Errorf("gather to %d: %w", root, err)
		}
	}
	return nil
}

// coll6: the same by an all-gather, whose input may be its place in the output.
func mpichAllRows(ctx context.Context, c *Comm) error {
	const columns = 7
	rank, size := c.Rank(), c.Size()
	counts := make([]int, size)
	for i := range counts {
		counts[i] = i * columns // none of rank 0
	}
	want := make([]int32, sum(counts))
	for i := range want {
		want[i] = int32(i)
	}
	return byEach(c, "all_gather_v", func(c *Comm) error {
		out := make([]int32, len(want))
		in := out[before(counts, rank):][:counts[rank]]
		copy(in, want[before(counts, rank):])
		err := errors.Join(AllGatherV(ctx, c, out, in, counts), equal(out, want))
		clear(out)
		in = slices.Clone(want[before(counts, rank):][:counts[rank]])
		return errors.Join(err, AllGatherV(ctx, c, out, in, counts), equal(out, want))
	})
}

// nonblocking: one request of every collective, all under way at once, waited for in the reverse order.
func mpichNonblocking(ctx context.Context, c *Comm) error {
	rank, size := c.Rank(), c.Size()
	mine, all, ranks := []int32{int32(rank)}, make([]int32, size), make([]int32, size)
	for i := range ranks {
		ranks[i] = int32(i)
	}
	total := int32(size * (size - 1) / 2)
	summed, reduced, first := []int32{int32(rank)}, []int32{int32(rank)}, []int32{int32(rank) + 9}
	scanned, exscanned := []int32{int32(rank)}, []int32{int32(rank)}
	gathered, scattered, block, turned := make([]int32, size), make([]int32, 1), make([]int32, 1), make([]int32, size)
	requests := []*Request{
		c.IBarrier(ctx), IAllReduce(ctx, c, summed, Sum), IReduce(ctx, c, reduced, size-1, Sum), IBroadcast(ctx, c, first, 0),
		IScan(ctx, c, scanned, Sum), IExscan(ctx, c, exscanned, Sum), IAllGather(ctx, c, all, mine),
		IGather(ctx, c, gathered, mine, 0), IScatter(ctx, c, scattered, ranks, size-1), IReduceScatter(ctx, c, block, ranks, Sum),
		IAllToAll(ctx, c, turned, ranks),
	}
	slices.Reverse(requests)
	if err := WaitAll(ctx, requests...); err != nil {
		return err
	}
	wantReduced, wantGathered, wantExscanned := int32(rank), make([]int32, size), int32(rank*(rank-1)/2)
	if rank == size-1 {
		wantReduced = total
	}
	if rank == 0 {
		wantGathered, wantExscanned = ranks, 0
	}
	return errors.Join(
		equal(summed, []int32{total}), equal(reduced, []int32{wantReduced}), equal(first, []int32{9}), equal(scanned, []int32{int32(rank * (rank + 1) / 2)}),
		equal(exscanned, []int32{wantExscanned}), equal(all, ranks), equal(gathered, wantGathered), equal(scattered, mine),
		equal(block, []int32{int32(size * rank)}), equal(turned, slices.Repeat(mine, size)))
}
