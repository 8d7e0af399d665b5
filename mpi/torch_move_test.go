package mpi

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Every rank once is the root, and sends its rank.
func torchBroadcast(ctx context.Context, c *Comm) error {
	for _, name := range permitted(c, "broadcast") {
		for root := range c.Size() {
			x, y := []float32{float32(c.Rank())}, []int64{int64(c.Rank()), -1}
			err := errors.Join(
				Broadcast(ctx, c.Using(name), x, root),
				BroadcastMany(ctx, c.Using(name), [][]int64{y[:1], nil, y[1:]}, root),
				equal(x, []float32{float32(root)}), equal(y, []int64{int64(root), -1}))
			if err != nil {
				return fmt.Errorf("by %q: %w", name, err)
			}
		}
	}
	return nil
}

// In round i root i hands out an i to every rank.
func torchScatter(ctx context.Context, c *Comm) error {
	for _, name := range permitted(c, "scatter") {
		for i := range c.Size() {
			var in []float32
			if c.Rank() == i {
				in = slices.Repeat([]float32{float32(i)}, c.Size())
			}
			out := []float32{-1}
			if err := errors.Join(Scatter(ctx, c.Using(name), out, in, i), equal(out, []float32{float32(i)})); err != nil {
				return fmt.Errorf("by %q: %w", name, err)
			}
		}
	}
	return nil
}

// Each root gets 0 to W-1.
func torchGather(ctx context.Context, c *Comm) error {
	for _, name := range permitted(c, "gather") {
		for root := range c.Size() {
			var out, want []float32
			if c.Rank() == root {
				out, want = make([]float32, c.Size()), upTo(c.Size())
			}
			if err := errors.Join(Gather(ctx, c.Using(name), out, []float32{float32(c.Rank())}, root), equal(out, want)); err != nil {
				return fmt.Errorf("by %q: %w", name, err)
			}
		}
	}
	return nil
}

// One, two and three inputs of each rank: n*rank+i come out as 0 to nW-1.
func torchAllGather(ctx context.Context, c *Comm) error {
	for _, name := range permitted(c, "all_gather") {
		for n := 1; n <= 3; n++ {
			out, want := make([]float32, n*c.Size()), upTo(n*c.Size())
			in := want[n*c.Rank():][:n]
			if err := errors.Join(AllGather(ctx, c.Using(name), out, in), equal(out, want)); err != nil {
				return fmt.Errorf("by %q: %w", name, err)
			}
		}
	}
	return nil
}

func upTo(n int) []float32 {
	list := make([]float32, n)
	for i := range list {
		list[i] = float32(i)
	}
	return list
}

// all_to_all_single of W x W ones times the rank: row i comes out as i.
func torchAllToAllEqual(ctx context.Context, c *Comm) error {
	size := c.Size()
	for _, name := range permitted(c, "all_to_all") {
		out, want := make([]complex64, size*size), make([]complex64, size*size)
		for i := range want {
			want[i] = complex(float32(i/size), 0)
		}
		in := slices.Repeat([]complex64{complex(float32(c.Rank()), 0)}, size*size)
		if err := errors.Join(AllToAll(ctx, c.Using(name), out, in), equal(out, want)); err != nil {
			return fmt.Errorf("by %q: %w", name, err)
		}
	}
	return nil
}

// all_to_all_single with in_splits[i] = i+1 rows of the rank's value, which come out as rank+1 rows of each i.
func torchAllToAllUnequal(ctx context.Context, c *Comm) error {
	rank, size := c.Rank(), c.Size()
	to, from := make([]int, size), make([]int, size)
	var want []complex64
	for i := range size {
		to[i], from[i] = size*(i+1), size*(rank+1)
		want = append(want, slices.Repeat([]complex64{complex(float32(i), -1)}, from[i])...)
	}
	in := slices.Repeat([]complex64{complex(float32(rank), -1)}, sum(to))
	for _, name := range permitted(c, "all_to_all_v") {
		out := make([]complex64, sum(from))
		if err := errors.Join(AllToAllV(ctx, c.Using(name), out, from, in, to), equal(out, want)); err != nil {
			return fmt.Errorf("by %q: %w", name, err)
		}
	}
	return nil
}
