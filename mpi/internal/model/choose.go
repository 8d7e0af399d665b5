package model

import (
	"math"

	"ddpbatch/mpi/internal/algorithm"
)

// margin is by how much of a cost another must be lower to be so at all. Costs that are equal on paper are not always
// equal in floating point, nor is a sum the same on processors that fuse it with a product and on others.
const margin = 1e-9

// Choose finds the entry with the least cost for size ranks and a buffer of n bytes (see [algorithm.Entry]), among those
// that fit and, with canonicalOnly, keep the canonical order. Of equal ones it is the first. It allocates nothing. There must
// be such an entry; every table has one. The zero Entry says that there is none.
func Choose[F any](entries []algorithm.Entry[F], m algorithm.Machine, size, n int, canonicalOnly bool) algorithm.Entry[F] {
	best, least := -1, math.Inf(1)
	for i := range entries {
		e := &entries[i].Traits
		if !fits(e, size) || canonicalOnly && !e.Canonical {
			continue
		}
		if cost := costOf(e, m, size, n); best < 0 || beats(cost, least) {
			best, least = i, cost
		}
	}
	if best < 0 {
		return algorithm.Entry[F]{}
	}
	return entries[best]
}

// beats tells whether a cost is lower than the least so far.
func beats(cost, least float64) bool { return cost < least*(1-margin) }

func fits(e *algorithm.Traits, size int) bool { return e.Fits == nil || e.Fits(size) }

// costOf is infinite where the formula gives what cannot be a time, so that costs have an order.
func costOf(e *algorithm.Traits, m algorithm.Machine, size, n int) float64 {
	if cost := e.Cost(m, size, n); cost >= 0 {
		return cost
	}
	return math.Inf(1)
}
