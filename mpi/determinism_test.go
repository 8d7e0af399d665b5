package mpi

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"ddpbatch/internal/testkit"
)

// determined reduces the same random inputs in many ways, as one rank, and compares the bits with those of the canonical tree. All ranks of
// a world must pass the same seed.
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

// inPieces cuts the buffer at random, and reduces the pieces all in one call, one by one, and several at once.
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

// scattered checks a reduce-scatter that leaves a random part of the result on every rank, and a scan over the ranks up to this one.
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

// canonicalNames returns the algorithms that a deterministic Comm may use, sorted. The empty name comes first, and leaves the choice to the
// Comm.
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

func TestDeterminismInEveryWorld(t *testing.T) { // without the race detector
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

// longLengths are around powers of two, from the shortest length that algorithms cut into segments.
var longLengths = []int{4095, 4097, 32767, 32769, 65536, 131073, 262145}

// With every canonical algorithm, each element gets the bits that the ranks' inputs make in the canonical tree. The buffers are long enough
// to go in segments, most of them have an odd length, and they lie in Go's memory on some ranks and in Alloc's memory on others.
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

// longWorlds returns two sizes of worlds, or all under -rounds. One of the two is a power of two, for which there are more algorithms.
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

// The bits depend neither on the transport nor on the order of the ranks in a group, if the ranks of the group have the same inputs.
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
				// In the group the ranks stand in the reverse order, and so do their inputs.
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

// matrixProduct multiplies 2 x 2 matrices of uint16s modulo 2^16, with each matrix in one element. It is MPICH's red3, and does not
// commute.
var matrixProduct = NewOp("matrix_product", false, func(dst, left, right []uint64) {
	for i := range dst {
		dst[i] = multiply(left[i], right[i])
	}
})

func multiply(a, b uint64) uint64 {
	at := func(m uint64, row, column int) uint64 { return m >> (16 * (2*row + column)) & 0xffff }
	var product uint64
	for row := range 2 {
		for column := range 2 {
			x := at(a, row, 0)*at(b, 0, column) + at(a, row, 1)*at(b, 1, column)
			product |= x & 0xffff << (16 * (2*row + column))
		}
	}
	return product
}

// An operation that does not commute combines the ranks in their order, with every algorithm, deterministic or not.
func TestNonCommutativeOperationKeepsRankOrder(t *testing.T) { // without the race detector
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	everywhere(t, []int{2, 3, 5, 8}, func(ctx context.Context, c *Comm) error {
		deterministic := rand.New(rand.NewPCG(seed, uint64(c.Size()))).IntN(2) == 1
		c.core.world.config.Deterministic = deterministic
		for _, n := range []int{1, 100, 9000} {
			if err := ordered(ctx, c, seed, n); err != nil {
				return fmt.Errorf("%d elements, deterministic %v: %w", n, deterministic, err)
			}
		}
		return nil
	})
}

func ordered(ctx context.Context, c *Comm, seed uint64, n int) error {
	k := whole[uint64]("uint64")
	all := k.inputs(seed, c.Size(), n)
	rank, own := c.Rank(), all[c.Rank()]
	prefix := make([][]uint64, c.Size()+1) // prefix[r] is the product of the inputs of the first r ranks
	for r := range all {
		prefix[r+1] = make([]uint64, n)
		for i := range n {
			if prefix[r+1][i] = all[r][i]; r > 0 {
				prefix[r+1][i] = multiply(prefix[r][i], all[r][i])
			}
		}
	}
	total := prefix[c.Size()]
	shared, err := Alloc[uint64](ctx, c, n)
	if err != nil {
		return err
	}
	for _, name := range canonicalNames(c, "all_reduce") {
		for _, buf := range [][]uint64{make([]uint64, n), shared} {
			copy(buf, own)
			if err := errors.Join(AllReduce(ctx, c.Using(name), buf, matrixProduct), k.same(buf, total)); err != nil {
				return fmt.Errorf("all_reduce by %q: %w", name, err)
			}
		}
	}
	buf := make([]uint64, n)
	for root := range c.Size() {
		for _, name := range canonicalNames(c, "reduce") {
			copy(buf, own)
			err := Reduce(ctx, c.Using(name), buf, root, matrixProduct)
			if rank == root {
				err = errors.Join(err, k.same(buf, total))
			}
			if err != nil {
				return fmt.Errorf("reduce by %q: %w", name, err)
			}
		}
	}
	counts := make([]int, c.Size())
	for i := range n {
		counts[i*i%len(counts)]++
	}
	out := make([]uint64, counts[rank])
	for _, name := range canonicalNames(c, "reduce_scatter") {
		err := ReduceScatterV(ctx, c.Using(name), out, own, counts, matrixProduct)
		if err := errors.Join(err, k.same(out, total[before(counts, rank):][:len(out)])); err != nil {
			return fmt.Errorf("reduce_scatter by %q: %w", name, err)
		}
	}
	copy(buf, own)
	if err := errors.Join(Scan(ctx, c, buf, matrixProduct), k.same(buf, prefix[rank+1])); err != nil {
		return fmt.Errorf("scan: %w", err)
	}
	copy(buf, own)
	err = Exscan(ctx, c, buf, matrixProduct)
	if rank > 0 {
		err = errors.Join(err, k.same(buf, prefix[rank]))
	}
	return err
}
