package mpi

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// allredmany: 10,000 calls in MPICH, back to back.
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

// longuser: an operation of the user's on 1, 2, 4, ... doubles.
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

// triple is uoplong's (sum, max, min) in one element.
func triple(sum, maximum, minimum uint64) uint64 { return sum<<32 | maximum<<16 | minimum }

// uoplong: an operation of the user's on many triples. MPICH goes to 1.2 million of them.
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

// red4: the product of permutations, one of a rank, which no other order of the ranks gives. The permutation of rank r swaps
// places r and r+1.
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

// +1e6 on one rank, -1e6 on another, 1e-2 elsewhere: the same bits on all ranks, those of the canonical tree.
func mpichAllredFloat(ctx context.Context, c *Comm) error {
	const n = 23
	names := canonicalNames(c, "all_reduce")
	if !c.core.config().Deterministic {
		names = names[1:] // the choice may be any
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
