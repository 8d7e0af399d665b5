package mpi

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"ddpbatch/internal/testkit"
)

// determined reduces the same random inputs in many ways, as one rank, and sets the bits against the canonical tree's. The ranks of a
// world give the same seed.
func determined[T Number](ctx context.Context, c *Comm, k kind[T], seed uint64) error {
	dice := rand.New(rand.NewPCG(seed, 1<<40))
	n := 1 + dice.IntN(400)
	all := k.inputs(seed, c.Size(), n)
	own, want := all[c.Rank()], k.canonical(all, k.fold(Sum))
	arena, err := Alloc[T](ctx, c, n+8)
	if err != nil {
		return err
	}
	for _, name := range canonicalNames(c, "all_reduce") {
		for _, buf := range [][]T{slices.Clone(own), arena[dice.IntN(9):][:n], append(make([]T, 3), own...)[3:]} {
			copy(buf, own)
			if err := AllReduce(ctx, c.Using(name), buf, Sum); err != nil {
				return err
			}
			if err := k.same(buf, want); err != nil {
				return fmt.Errorf("all at once by %q: %w", name, err)
			}
		}
	}
	if err := k.inPieces(ctx, c, dice, own, want); err != nil {
		return err
	}
	for _, name := range canonicalNames(c, "reduce") {
		root := dice.IntN(c.Size())
		buf := slices.Clone(own)
		if err := Reduce(ctx, c.Using(name), buf, root, Sum); err != nil {
			return err
		}
		if c.Rank() != root {
			continue
		}
		if err := k.same(buf, want); err != nil {
			return fmt.Errorf("to one rank by %q: %w", name, err)
		}
	}
	return k.scattered(ctx, c, dice, own, want, all)
}

// inPieces cuts the buffer at random, and reduces the pieces one by one, several under way, and all in one call.
func (k kind[T]) inPieces(ctx context.Context, c *Comm, dice *rand.Rand, own, want []T) error {
	ways := []func(pieces [][]T) error{
		func(pieces [][]T) error { return AllReduceMany(ctx, c, pieces, Sum) },
		func(pieces [][]T) error {
			for _, piece := range pieces {
				if err := AllReduce(ctx, c, piece, Sum); err != nil {
					return err
				}
			}
			return nil
		},
		func(pieces [][]T) error {
			var requests []*Request
			for _, piece := range pieces {
				requests = append(requests, IAllReduce(ctx, c, piece, Sum))
			}
			return WaitAll(ctx, requests...)
		},
	}
	for i, way := range ways {
		buf := slices.Clone(own)
		var pieces [][]T
		for rest := buf; len(rest) > 0; {
			cut := 1 + dice.IntN(len(rest))
			pieces, rest = append(pieces, rest[:cut]), rest[cut:]
		}
		if err := way(pieces); err != nil {
			return err
		}
		if err := k.same(buf, want); err != nil {
			return fmt.Errorf("in %d pieces, way %d: %w", len(pieces), i, err)
		}
	}
	return nil
}

// scattered leaves every rank a random part of the result, and what a scan makes of the ranks before it.
func (k kind[T]) scattered(ctx context.Context, c *Comm, dice *rand.Rand, own, want []T, all [][]T) error {
	counts := make([]int, c.Size())
	for range own {
		counts[dice.IntN(len(counts))]++
	}
	out := make([]T, counts[c.Rank()])
	for _, name := range canonicalNames(c, "reduce_scatter") {
		if err := ReduceScatterV(ctx, c.Using(name), out, own, counts, Sum); err != nil {
			return err
		}
		if err := k.same(out, want[before(counts, c.Rank()):][:len(out)]); err != nil {
			return fmt.Errorf("scattered by %q: %w", name, err)
		}
	}
	buf := slices.Clone(own)
	if err := Scan(ctx, c, buf, Sum); err != nil {
		return err
	}
	if err := k.same(buf, k.canonical(all[:c.Rank()+1], k.fold(Sum))); err != nil {
		return fmt.Errorf("scan: %w", err)
	}
	return nil
}

// canonicalNames are the algorithms that a deterministic Comm may be told to use, sorted; the empty name leaves it the choice.
func canonicalNames(c *Comm, collective string) []string {
	names := []string{""}
	for _, tt := range conformity {
		if tt.name != collective {
			continue
		}
		algorithms := tt.names(c)
		for _, name := range sortedKeys(algorithms) {
			if algorithms[name] {
				names = append(names, name)
			}
		}
	}
	return names
}

func TestDeterminism(t *testing.T) { // without the race detector
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for _, over := range transports {
		for _, size := range sampleOf(over, worlds) {
			t.Run(over+"/"+rankName(size), func(t *testing.T) {
				w := newWorldOn(t, over, size, nil)
				must(t, testkit.Each(size, func(rank int) error {
					ctx, c := t.Context(), w[rank]
					if err := determined(ctx, c, kindFloat32, seed); err != nil {
						return fmt.Errorf("float32: %w", err)
					}
					if err := determined(ctx, c, kindFloat64, seed+1); err != nil {
						return fmt.Errorf("float64: %w", err)
					}
					if err := determined(ctx, c, kindBFloat16, seed+2); err != nil {
						return fmt.Errorf("bfloat16: %w", err)
					}
					if err := determined(ctx, c, kindFloat16, seed+3); err != nil {
						return fmt.Errorf("float16: %w", err)
					}
					return nil
				}))
			})
		}
	}
}
