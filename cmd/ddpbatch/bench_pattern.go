package main

import "ddpbatch/mpi"

// patternPeriod is after how many elements a pattern repeats: a prime, so that blocks that landed in the wrong place
// do not look right.
const patternPeriod = 251

// pattern is what a rank of ranks contributes, one period of it: small whole numbers, so that results are exact
// whatever the element type. Seed 0 is all zeros, which stay what they are however often they are reduced in place.
func pattern(op benchOp, rank, ranks, seed int) []int64 {
	p := make([]int64, patternPeriod)
	for i := range p {
		if seed != 0 {
			p[i] = contribution(op, rank, ranks, (i*(rank+3)+seed)%8)
		}
	}
	return p
}

// contribution makes n, which is 0 to 7, small enough: bfloat16 has whole numbers up to 256 and
// float16 powers of two up to 2^15, and a product of more than that is infinite in any order.
func contribution(op benchOp, rank, ranks, n int) int64 {
	switch {
	case op == opProd && rank < 32:
		return 1 + int64(n%2)
	case op == opProd:
		return 1
	case ranks*7 <= 256:
		return int64(n)
	case rank < 256:
		return int64(n % 2)
	}
	return 0
}

// reducedPattern is what the patterns of ranks 0 to last make together, by the plainest loop.
func reducedPattern(op benchOp, last, ranks, seed int) []int64 {
	p := pattern(op, 0, ranks, seed)
	for rank := 1; rank <= last; rank++ {
		for i, x := range pattern(op, rank, ranks, seed) {
			switch op {
			case opSum:
				p[i] += x
			case opProd:
				p[i] *= x
			case opMin:
				p[i] = min(p[i], x)
			case opMax:
				p[i] = max(p[i], x)
			}
		}
	}
	return p
}

// converted is a pattern in an element type.
func converted[T mpi.Number](p []int64, of func(int64) T) []T {
	out := make([]T, len(p))
	for i, x := range p {
		out[i] = of(x)
	}
	return out
}

// spread fills buf with a pattern; element 0 is the pattern's element at.
func spread[T mpi.Number](buf, pattern []T, at int) {
	n := copy(buf, pattern[at%patternPeriod:])
	for n < len(buf) {
		n += copy(buf[n:], pattern)
	}
}

// differ counts the elements of buf that are not spread's.
func differ[T mpi.Number](buf, pattern []T, at int) (wrong int64) {
	at %= patternPeriod
	for _, x := range buf {
		if x != pattern[at] {
			wrong++
		}
		if at++; at == patternPeriod {
			at = 0
		}
	}
	return wrong
}
