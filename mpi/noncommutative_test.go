package mpi

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
)

// matrixProduct multiplies 2 x 2 matrices of uint16s modulo 2^16, each in one element: MPICH's red3. It does not commute.
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

// An operation that does not commute combines the ranks in their order, on every way there is, deterministic or not.
func TestNonCommutative(t *testing.T) { // without the race detector
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
	prefix := make([][]uint64, c.Size()+1) // the products of the first ranks, one after another
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
