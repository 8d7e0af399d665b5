package mpi

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// The tests of this file are from MPICH's test/mpi/coll. Most of them use every algorithm of the collective.

// byEach calls f for every algorithm of the collective, with c set to that algorithm.
func byEach(c *Comm, collective string, f func(c *Comm) error) error {
	for _, name := range permitted(c, collective) {
		if err := f(c.Using(name)); err != nil {
			return fmt.Errorf("by %q: %w", name, err)
		}
	}
	return nil
}

// byEachInOrder is byEach for an operation that does not commute, for which only canonical algorithms can be named.
func byEachInOrder(c *Comm, collective string, f func(c *Comm) error) error {
	for _, name := range canonicalNames(c, collective) {
		if err := f(c.Using(name)); err != nil {
			return fmt.Errorf("by %q: %w", name, err)
		}
	}
	return nil
}

func mpichRedscat(ctx context.Context, c *Comm) error {
	rank, size := c.Rank(), c.Size()
	in := make([]int32, size)
	for i := range in {
		in[i] = int32(rank + i)
	}
	return byEach(c, "reduce_scatter", func(c *Comm) error {
		out := make([]int32, 1)
		err := ReduceScatter(ctx, c, out, in, Sum)
		return errors.Join(err, equal(out, []int32{int32(size*rank + size*(size-1)/2)}))
	})
}

// mpichRedscat2 is redscat2. Element i of rank r is r+i. The left operand of all is rank 0's, and the right one that of the last rank.
func mpichRedscat2(ctx context.Context, c *Comm) error {
	const block = 5
	rank, size := c.Rank(), c.Size()
	left := NewOp("left", false, func(dst, a, _ []int32) { copy(dst, a) })
	right := NewOp("right", false, func(dst, _, b []int32) { copy(dst, b) })
	in := make([]int32, block*size)
	for i := range in {
		in[i] = int32(rank + i)
	}
	wantLeft, wantRight := make([]int32, block), make([]int32, block)
	for i := range block {
		wantLeft[i], wantRight[i] = int32(rank*block+i), int32(size-1+rank*block+i)
	}
	return byEachInOrder(c, "reduce_scatter", func(c *Comm) error {
		out := make([]int32, block)
		return errors.Join(
			ReduceScatter(ctx, c, out, in, left), equal(out, wantLeft),
			ReduceScatter(ctx, c, out, in, right), equal(out, wantRight))
	})
}

func mpichAllToAll(ctx context.Context, c *Comm) error {
	const block = 7
	rank, size := c.Rank(), c.Size()
	in, want := make([]int32, block*size), make([]int32, block*size)
	for j := range size {
		for i := range block {
			in[j*block+i], want[j*block+i] = int32(j*size+rank+i), int32(rank*size+j+i)
		}
	}
	return byEach(c, "all_to_all", func(c *Comm) error {
		out := make([]int32, block*size)
		return errors.Join(AllToAll(ctx, c, out, in), equal(out, want))
	})
}

// Rank r gets r items from each rank.
func mpichAllToAllV(ctx context.Context, c *Comm) error {
	rank, size := c.Rank(), c.Size()
	to, from := make([]int, size), make([]int, size)
	var want []int32
	for i := range size {
		to[i], from[i] = i, rank
		for j := range rank {
			want = append(want, int32(100*i+rank*(rank-1)/2+j))
		}
	}
	in := make([]int32, sum(to))
	for i := range in {
		in[i] = int32(i + 100*rank)
	}
	return byEach(c, "all_to_all_v", func(c *Comm) error {
		out := make([]int32, sum(from))
		return errors.Join(AllToAllV(ctx, c, out, from, in, to), equal(out, want))
	})
}

// Each rank sends only to its two neighbors.
func mpichAllToAllV0(ctx context.Context, c *Comm) error {
	const block = 3
	rank, size := c.Rank(), c.Size()
	left, right := (rank+size-1)%size, (rank+1)%size
	counts := make([]int, size)
	counts[left], counts[right] = block, block
	var in, want []int64
	for i := range size {
		if counts[i] > 0 {
			in = append(in, slices.Repeat([]int64{int64(rank*100 + i)}, block)...)
			want = append(want, slices.Repeat([]int64{int64(i*100 + rank)}, block)...)
		}
	}
	return byEach(c, "all_to_all_v", func(c *Comm) error {
		out := make([]int64, len(want))
		return errors.Join(AllToAllV(ctx, c, out, counts, in, counts), equal(out, want))
	})
}

func mpichExscan(ctx context.Context, c *Comm) error {
	rank, size := c.Rank(), c.Size()
	for n := 1; n < 10_000; n *= 7 {
		in, want := make([]int32, n), make([]int32, n)
		for i := range n {
			in[i] = int32(rank + i*size)
			want[i] = int32(rank*i*size + rank*(rank-1)/2)
			if rank == 0 {
				want[i] = in[i]
			}
		}
		err := byEach(c, "exscan", func(c *Comm) error {
			buf := slices.Clone(in)
			return errors.Join(Exscan(ctx, c, buf, Sum), equal(buf, want))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func mpichBitwise(ctx context.Context, c *Comm) error {
	in := []uint8{0xff, 0, 0xc3}
	if c.Rank() > 0 {
		in[2] = 0x3c
	}
	odd := byte(0)
	if c.Size()%2 == 1 {
		odd = 0xff
	}
	last := byte(0xc3)
	if c.Size()%2 == 0 {
		last ^= 0x3c
	}
	return errors.Join(
		reduced(ctx, c, BAnd, in, []uint8{0xff, 0, 0}),
		reduced(ctx, c, BOr, in, []uint8{0xff, 0, 0xff}),
		reduced(ctx, c, BXor, in, []uint8{odd, 0, last}))
}

func mpichAllred5(ctx context.Context, c *Comm) error {
	n := 2 * c.Size()
	in, want := make([]int32, n), make([]int32, n)
	for i := range n {
		in[i], want[i] = int32(i+c.Rank()), int32(c.Size()*i+c.Size()*(c.Size()-1)/2)
	}
	return reduced(ctx, c, Sum, in, want)
}

func equal[T comparable](got, want []T) error {
	if !slices.Equal(got, want) {
		return fmt.Errorf("got %v, want %v", got, want)
	}
	return nil
}

// mpichAllredMany is allredmany. MPICH makes 10,000 calls, back to back.
func mpichAllredMany(ctx context.Context, c *Comm) error {
	calls := 300
	if *conformRounds > 1 {
		calls = 10_000
	}
	for i := range calls {
		x := []int32{int32(i)}
		if err := errors.Join(AllReduce(ctx, c, x, Sum), equal(x, []int32{int32(i * c.Size())})); err != nil {
			return err
		}
	}
	return nil
}

// mpichLongUser is longuser, a user's operation on 1, 2, 4, ... doubles.
func mpichLongUser(ctx context.Context, c *Comm) error {
	add := NewOp("add", true, func(dst, a, b []float64) {
		for i := range dst {
			dst[i] = a[i] + b[i]
		}
	})
	for n := 1; n < 100_000; n *= 2 {
		buf, want := make([]float64, n), make([]float64, n)
		for i := range n {
			buf[i], want[i] = float64(c.Rank()+i), float64(c.Size()*i+c.Size()*(c.Size()-1)/2)
		}
		if err := errors.Join(AllReduce(ctx, c, buf, add), equal(buf, want)); err != nil {
			return err
		}
	}
	return nil
}

// triple packs (sum, max, min) of uoplong into one element.
func triple(sum, maximum, minimum uint64) uint64 { return sum<<32 | maximum<<16 | minimum }

// mpichUserOpLong is uoplong, a user's operation on many triples. MPICH uses up to 1.2 million of them.
func mpichUserOpLong(ctx context.Context, c *Comm) error {
	combine := NewOp("sum_max_min", true, func(dst, a, b []uint64) {
		for i := range dst {
			dst[i] = triple(a[i]>>32+b[i]>>32, max(a[i]>>16&0xffff, b[i]>>16&0xffff), min(a[i]&0xffff, b[i]&0xffff))
		}
	})
	lengths := []int{1, 99, 6000}
	if *conformRounds > 1 {
		lengths = append(lengths, 1_200_000)
	}
	rank, size := uint64(c.Rank()), uint64(c.Size())
	for _, n := range lengths {
		in, want := make([]uint64, n), make([]uint64, n)
		for i := range n {
			x := uint64(i % 1000)
			in[i], want[i] = triple(x+rank, x+rank, x+rank), triple(size*x+size*(size-1)/2, x+size-1, x)
		}
		err := byEach(c, "all_reduce", func(c *Comm) error {
			buf := slices.Clone(in)
			return errors.Join(AllReduce(ctx, c, buf, combine), kindTriple.same(buf, want))
		})
		if err != nil {
			return fmt.Errorf("%d triples: %w", n, err)
		}
	}
	return nil
}

var kindTriple = whole[uint64]("triple")

// mpichPermutations is red4, the product of one permutation of each rank, which no other order of the ranks gives. The permutation of rank
// r swaps places r and r+1.
func mpichPermutations(ctx context.Context, c *Comm) error {
	after := NewOp("after", false, func(dst, left, right []uint64) {
		for i := range dst {
			dst[i] = permute(left[i], right[i])
		}
	})
	swap := func(rank int) uint64 {
		places := uint64(0xfedcba9876543210)
		at := rank % 15
		low, high := places>>(4*at)&15, places>>(4*at+4)&15
		return places&^(0xff<<(4*at)) | high<<(4*at) | low<<(4*at+4)
	}
	product := swap(0)
	for rank := 1; rank < c.Size(); rank++ {
		product = permute(product, swap(rank))
	}
	in, want := []uint64{swap(c.Rank())}, []uint64{product}
	for root := range c.Size() {
		err := byEachInOrder(c, "reduce", func(c *Comm) error {
			buf := slices.Clone(in)
			if err := Reduce(ctx, c, buf, root, after); err != nil || c.Rank() != root {
				return err
			}
			return equal(buf, want)
		})
		if err != nil {
			return fmt.Errorf("to rank %d: %w", root, err)
		}
	}
	return byEachInOrder(c, "all_reduce", func(c *Comm) error {
		buf := slices.Clone(in)
		return errors.Join(AllReduce(ctx, c, buf, after), equal(buf, want))
	})
}

// permute applies one permutation of 16 places, and then another.
func permute(first, second uint64) uint64 {
	var both uint64
	for i := range 16 {
		both |= (second >> (4 * (first >> (4 * i) & 15)) & 15) << (4 * i)
	}
	return both
}

// mpichAllredFloat sums +1e6 of one rank, -1e6 of another, and 1e-2 of the others. All ranks get the same bits, those of the canonical
// tree.
func mpichAllredFloat(ctx context.Context, c *Comm) error {
	const n = 23
	names := canonicalNames(c, "all_reduce")
	if !c.core.config().Deterministic {
		names = names[1:] // the algorithm that the Comm chooses need not be canonical
	}
	for a := range c.Size() {
		for b := range c.Size() {
			if a == b {
				continue
			}
			x := slices.Repeat([]float32{1e-2}, c.Size())
			x[a], x[b] = 1e6, -1e6
			in := x[c.Rank()]
			want := slices.Repeat([]float32{tree(x, func(a, b float32) float32 { return a + b })}, n)
			name := names[(a*c.Size()+b)%len(names)]
			buf := slices.Repeat([]float32{in}, n)
			err := errors.Join(AllReduce(ctx, c.Using(name), buf, Sum), kindFloat32.same(buf, want))
			if err != nil {
				return fmt.Errorf("big on %d, -big on %d, by %q: %w", a, b, name, err)
			}
		}
	}
	return nil
}

// mpichRows is coll4 and coll5. The rows of a table are scattered, a few to each rank and the rest to the last, and gathered again. MPICH's
// table is 10 x 10.
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

// mpichAllRows is coll6, the same by an all-gather. Its input is the rank's place in the output, and then another buffer.
func mpichAllRows(ctx context.Context, c *Comm) error {
	const columns = 7
	rank, size := c.Rank(), c.Size()
	counts := make([]int, size)
	for i := range counts {
		counts[i] = i * columns // rank 0 has none
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

// mpichNonblocking is nonblocking: one request of every collective, all under way at once, waited for in the reverse order.
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
		equal(summed, []int32{total}), equal(reduced, []int32{wantReduced}), equal(first, []int32{9}),
		equal(scanned, []int32{int32(rank * (rank + 1) / 2)}),
		equal(exscanned, []int32{wantExscanned}), equal(all, ranks), equal(gathered, wantGathered), equal(scattered, mine),
		equal(block, []int32{int32(size * rank)}), equal(turned, slices.Repeat(mine, size)))
}
