package mpi

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// The tests of this file are from MPICH's test/mpi/coll (reference/collectives.md 4.5), with every algorithm of the collective.

// byEach calls f with c set to every algorithm of the collective.
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

// Block i of rank r is r*B*size + i: the left operand of all is rank 0's, the right one that of the last rank.
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

// Rank r gets r items of each rank.
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

// Nothing goes to any but the two neighbours.
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
