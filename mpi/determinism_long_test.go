package mpi

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"ddpbatch/internal/testkit"
)

// longLengths are around powers of two, from the first that algorithms cut into segments on.
var longLengths = []int{4095, 4097, 32767, 32769, 65536, 131073, 262145}

// Buffers that are long enough to go in segments, and whose ends are odd, by every canonical algorithm, in Go's memory on some ranks and
// in that of Alloc on others: each element has the bits that the ranks' inputs make in the canonical tree.
func TestDeterminismOfLongBuffers(t *testing.T) { // without the race detector
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	dice := rand.New(rand.NewPCG(seed, 2))
	for _, over := range transports {
		for _, size := range longWorlds() {
			n := longLengths[dice.IntN(len(longLengths))]
			t.Run(fmt.Sprintf("%s/%s/%d_elements", over, rankName(size), n), func(t *testing.T) {
				all := kindFloat32.inputs(seed, size, n)
				want := kindFloat32.canonical(all, kindFloat32.fold(Sum))
				w := newWorldOn(t, over, size, nil)
				must(t, testkit.Each(size, func(rank int) error { return determinedLong(t.Context(), w[rank], all[rank], want) }))
			})
		}
	}
}

// longWorlds are two, or all under -rounds: one has a power of two of ranks, for which there are more algorithms.
func longWorlds() []int {
	return append(sampleOf("some", []int{2, 4, 8}), sampleOf("some", []int{3, 6, 7})...)
}

func determinedLong(ctx context.Context, c *Comm, own, want []float32) error {
	n, rank := len(own), c.Rank()
	arena, err := Alloc[float32](ctx, c, n+3)
	if err != nil {
		return err
	}
	plain, lent := make([]float32, n), arena[3:]
	for _, name := range canonicalNames(c, "all_reduce") {
		for turn := range 2 {
			buf := [][]float32{plain, lent}[(rank+turn)%2]
			copy(buf, own)
			if err := AllReduce(ctx, c.Using(name), buf, Sum); err != nil {
				return err
			}
			if err := kindFloat32.same(buf, want); err != nil {
				return fmt.Errorf("all_reduce by %q: %w", name, err)
			}
		}
	}
	for i, name := range canonicalNames(c, "reduce") {
		root := i % c.Size()
		buf := [][]float32{plain, lent}[(rank+i)%2]
		copy(buf, own)
		if err := Reduce(ctx, c.Using(name), buf, root, Sum); err != nil {
			return err
		}
		result := own
		if rank == root {
			result = want
		}
		if err := kindFloat32.same(buf, result); err != nil {
			return fmt.Errorf("reduce by %q: %w", name, err)
		}
	}
	counts := slices.Repeat([]int{n / c.Size()}, c.Size())
	counts[c.Size()/2] += n % c.Size()
	at := before(counts, rank)
	for i, name := range canonicalNames(c, "reduce_scatter") {
		in, out := [][]float32{plain, lent}[(rank+i)%2], make([]float32, counts[rank])
		copy(in, own)
		if err := ReduceScatterV(ctx, c.Using(name), out, in, counts, Sum); err != nil {
			return err
		}
		if err := kindFloat32.same(out, want[at:][:len(out)]); err != nil {
			return fmt.Errorf("reduce_scatter by %q: %w", name, err)
		}
	}
	return nil
}

// A world that is another in all that may not matter, and its groups, make the same bits of the same inputs.
func TestDeterminismAcrossWorlds(t *testing.T) { // without the race detector
	const size, n = 6, 3001
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	all := kindFloat32.inputs(seed, size, n)
	want := kindFloat32.canonical(all, kindFloat32.fold(Sum))
	for _, over := range transports {
		t.Run(over, func(t *testing.T) {
			w := newWorldOn(t, over, size, nil)
			must(t, testkit.Each(size, func(rank int) error {
				// In the group the ranks stand the other way round, and so do their inputs.
				turned, err := w[rank].Split(t.Context(), 0, -rank)
				if err != nil {
					return err
				}
				buf := slices.Clone(all[turned.Rank()])
				if err := AllReduce(t.Context(), turned, buf, Sum); err != nil {
					return err
				}
				return kindFloat32.same(buf, want)
			}))
		})
	}
}
