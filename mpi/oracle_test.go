package mpi

import (
	"fmt"
	"math/rand/v2"
)

// tree combines one element of every rank in canonical order, by the definition: neighbours are paired, level by level, and
// one left over moves up as it is. It uses up xs.
func tree[T any](xs []T, f func(a, b T) T) T {
	for len(xs) > 1 {
		next := xs[:0]
		for i := 0; i < len(xs); i += 2 {
			if i+1 == len(xs) {
				next = append(next, xs[i])
			} else {
				next = append(next, f(xs[i], xs[i+1]))
			}
		}
		xs = next
	}
	return xs[0]
}

// inputs makes up n elements for each rank, the same on every rank that asks.
func (k kind[T]) inputs(seed uint64, size, n int) [][]T {
	all := make([][]T, size)
	for rank := range all {
		dice := rand.New(rand.NewPCG(seed, uint64(rank)))
		all[rank] = make([]T, n)
		for i := range all[rank] {
			all[rank][i] = k.random(dice)
		}
	}
	return all
}

// canonical is what these inputs combine to.
func (k kind[T]) canonical(inputs [][]T, f func(a, b T) T) []T {
	result := make([]T, len(inputs[0]))
	column := make([]T, len(inputs))
	for i := range result {
		for rank := range inputs {
			column[rank] = inputs[rank][i]
		}
		result[i] = tree(column, f)
	}
	return result
}

// same is an error that shows the first element whose bits are not those wanted. All NaNs are the same.
func (k kind[T]) same(got, want []T) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d elements, want %d", len(got), len(want))
	}
	for i := range got {
		if got[i] != got[i] && want[i] != want[i] {
			continue
		}
		a, b := k.bits(got[i])
		if c, d := k.bits(want[i]); a != c || b != d {
			return fmt.Errorf("element %d of %d is %v (%x %x), want %v (%x %x)", i, len(got), got[i], a, b, want[i], c, d)
		}
	}
	return nil
}
