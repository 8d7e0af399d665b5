package mpi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
)

// mpichWorlds are the numbers of ranks of MPICH's test/mpi/coll/testlist (reference/collectives.md 4.5), from which the
// tests of this file are.
var mpichWorlds = []int{3, 4, 5, 7, 8, 10}

func TestMPICH(t *testing.T) {
	everywhere(t, mpichWorlds, func(ctx context.Context, c *Comm) error {
		for _, tt := range []struct {
			name string
			run  func(ctx context.Context, c *Comm) error
		}{
			{"redscat", mpichRedscat},
			{"redscat2", mpichRedscat2},
			{"alltoall1", mpichAllToAll},
			{"alltoallv", mpichAllToAllV},
			{"alltoallv0", mpichAllToAllV0},
			{"exscan", mpichExscan},
			{"opband", mpichBitwise},
			{"allred5", mpichAllred5},
			{"allredmany", mpichAllredMany},
			{"longuser", mpichLongUser},
			{"allred_float", mpichAllredFloat},
		} {
			if err := tt.run(ctx, c); err != nil {
				return fmt.Errorf("%s: %w", tt.name, err)
			}
		}
		return nil
	})
}

func mpichRedscat(ctx context.Context, c *Comm) error {
	rank, size := c.Rank(), c.Size()
	in, out := make([]int32, size), make([]int32, 1)
	for i := range in {
		in[i] = int32(rank + i)
	}
	err := ReduceScatter(ctx, c, out, in, Sum)
	return errors.Join(err, equal(out, []int32{int32(size*rank + size*(size-1)/2)}))
}

// Block i of rank r is r*B*size + i: the left operand of all is rank 0's, the right one that of the last rank.
func mpichRedscat2(ctx context.Context, c *Comm) error {
	const block = 5
	rank, size := c.Rank(), c.Size()
	left := NewOp("left", false, func(dst, a, _ []int32) { copy(dst, a) })
	right := NewOp("right", false, func(dst, _, b []int32) { copy(dst, b) })
	in, out := make([]int32, block*size), make([]int32, block)
	for i := range in {
		in[i] = int32(rank + i)
	}
	wantLeft, wantRight := make([]int32, block), make([]int32, block)
	for i := range block {
		wantLeft[i], wantRight[i] = int32(rank*block+i), int32(size-1+rank*block+i)
	}
	return errors.Join(
		ReduceScatter(ctx, c, out, in, left), equal(out, wantLeft),
		ReduceScatter(ctx, c, out, in, right), equal(out, wantRight))
}

func mpichAllToAll(ctx context.Context, c *Comm) error {
	const block = 7
	rank, size := c.Rank(), c.Size()
	in, out, want := make([]int32, block*size), make([]int32, block*size), make([]int32, block*size)
	for j := range size {
		for i := range block {
			in[j*block+i], want[j*block+i] = int32(j*size+rank+i), int32(rank*size+j+i)
		}
	}
	return errors.Join(AllToAll(ctx, c, out, in), equal(out, want))
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
	out := make([]int32, sum(from))
	return errors.Join(AllToAllV(ctx, c, out, from, in, to), equal(out, want))
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
	out := make([]int64, len(want))
	return errors.Join(AllToAllV(ctx, c, out, counts, in, counts), equal(out, want))
}

func mpichExscan(ctx context.Context, c *Comm) error {
	rank, size := c.Rank(), c.Size()
	for n := 1; n < 10_000; n *= 7 {
		buf, want := make([]int32, n), make([]int32, n)
		for i := range n {
			buf[i] = int32(rank + i*size)
			want[i] = int32(rank*i*size + rank*(rank-1)/2)
			if rank == 0 {
				want[i] = buf[i]
			}
		}
		if err := errors.Join(Exscan(ctx, c, buf, Sum), equal(buf, want)); err != nil {
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

func mpichAllredMany(ctx context.Context, c *Comm) error {
	for i := range 100 {
		x := []int32{int32(i)}
		if err := errors.Join(AllReduce(ctx, c, x, Sum), equal(x, []int32{int32(i * c.Size())})); err != nil {
			return err
		}
	}
	return nil
}

func mpichLongUser(ctx context.Context, c *Comm) error {
	add := NewOp("add", true, func(dst, a, b []float64) {
		for i := range dst {
			dst[i] = a[i] + b[i]
		}
	})
	for n := 1; n < 100_000; n *= 16 {
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

// +1e6 on one rank, -1e6 on another, 1e-2 elsewhere: the same bits on all ranks, those of the canonical tree.
func mpichAllredFloat(ctx context.Context, c *Comm) error {
	const n = 23
	for a := range c.Size() {
		for b := range c.Size() {
			if a == b {
				continue
			}
			x := slices.Repeat([]float32{1e-2}, c.Size())
			x[a], x[b] = 1e6, -1e6
			buf := slices.Repeat([]float32{x[c.Rank()]}, n)
			want := slices.Repeat([]float32{tree(x, func(a, b float32) float32 { return a + b })}, n)
			if err := errors.Join(AllReduce(ctx, c, buf, Sum), kindFloat32.same(buf, want)); err != nil {
				return fmt.Errorf("big on %d, -big on %d: %w", a, b, err)
			}
		}
	}
	return nil
}

func equal[T comparable](got, want []T) error {
	if !slices.Equal(got, want) {
		return fmt.Errorf("got %v, want %v", got, want)
	}
	return nil
}
