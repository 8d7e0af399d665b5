package mpi

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"ddpbatch/internal/testkit"
)

// Buffers of Alloc are zero, have the requested length, and do not overlap, even if there are many.
func TestAlloc(t *testing.T) {
	everywhere(t, []int{1, 2, 4}, func(ctx context.Context, c *Comm) error {
		var all [][]int32
		for i := range 60 {
			n := (i * 37 % 50) * (c.Rank() + i%2) // the length differs between ranks
			buf, err := Alloc[int32](ctx, c, n)
			if err != nil {
				return err
			}
			if len(buf) != n || slices.ContainsFunc(buf, func(x int32) bool { return x != 0 }) {
				return fmt.Errorf("buffer %d of %d elements is %v", i, n, buf)
			}
			for j := range buf {
				buf[j] = int32(i)
			}
			all = append(all, buf)
		}
		for i, buf := range all {
			if slices.ContainsFunc(buf, func(x int32) bool { return x != int32(i) }) {
				return fmt.Errorf("buffer %d is %v", i, buf)
			}
		}
		big, err := Alloc[float64](ctx, c, 100_000)
		if err != nil {
			return err
		}
		for i := range big {
			big[i] = float64(i + c.Rank())
		}
		if err := AllReduce(ctx, c, big, Sum); err != nil {
			return err
		}
		for i, x := range big {
			if want := float64(c.Size()*i + c.Size()*(c.Size()-1)/2); x != want {
				return fmt.Errorf("element %d is %v, want %v", i, x, want)
			}
		}
		return nil
	})
}

// The bits do not depend on where buffers lie: at any place in Alloc's memory or elsewhere, and differently on each rank.
func TestBitsDoNotDependOnAlloc(t *testing.T) { // without the race detector
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	everywhere(t, []int{2, 3, 4}, func(ctx context.Context, c *Comm) error {
		own := rand.New(rand.NewPCG(seed, uint64(c.Rank())))
		pool, err := Alloc[float32](ctx, c, 100_000)
		if err != nil {
			return err
		}
		for i, n := range []int{1, 7, 1000, 8191, 60_000} {
			all := kindFloat32.inputs(seed+uint64(i), c.Size(), n)
			want := kindFloat32.canonical(all, kindFloat32.fold(Sum))
			for range 3 {
				buf := make([]float32, n+1)[1:]
				if own.IntN(3) > 0 {
					buf = pool[own.IntN(len(pool)-n):][:n]
				}
				copy(buf, all[c.Rank()])
				if err := errors.Join(AllReduce(ctx, c, buf, Sum), kindFloat32.same(buf, want)); err != nil {
					return fmt.Errorf("%d elements: %w", n, err)
				}
			}
		}
		return nil
	})
}

// A group has its own memory. Another group treats a buffer in it like any other.
func TestGroupsHaveMemoryOfTheirOwn(t *testing.T) {
	everywhere(t, []int{4}, func(ctx context.Context, c *Comm) error {
		pair, err := c.Split(ctx, c.Rank()/2, 0)
		if err != nil {
			return err
		}
		of, err := Alloc[int64](ctx, pair, 5000)
		if err != nil {
			return err
		}
		for _, tt := range []struct {
			c    *Comm
			want int64
		}{{pair, 2}, {c, 4}, {pair, 2}} {
			for i := range of {
				of[i] = 1
			}
			if err := AllReduce(ctx, tt.c, of, Sum); err != nil {
				return err
			}
			if slices.ContainsFunc(of, func(x int64) bool { return x != tt.want }) {
				return fmt.Errorf("in a group of %d: %v", tt.c.Size(), of[:10])
			}
		}
		return pair.Close()
	})
}

func TestImpossibleAllocIsAnError(t *testing.T) {
	for _, n := range []int{-1, 1 << 60} {
		w := newWorldOn(t, "shm", 2, nil)
		errs := testkit.Each(2, func(rank int) error {
			if rank == 0 {
				_, err := Alloc[float64](t.Context(), w[0], n)
				return err
			}
			return w[1].Barrier(t.Context()) // gets the error, and does not wait
		})
		if errs[0] == nil || !strings.Contains(errs[0].Error(), "elements of 8 bytes") || !errors.Is(errs[1], ErrAborted) {
			t.Errorf("%d: got %v", n, errs)
		}
	}
	w := newWorldOn(t, "shm", 2, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Alloc[float64](ctx, w[0], 1); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
