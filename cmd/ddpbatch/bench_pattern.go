package main

import "ddpbatch/mpi"

// patternPeriod is after how many elements a pattern repeats: a prime, so that pieces of messages, whose lengths are
// powers of two, do not look right in each other's places.
const patternPeriod = 4093

// noOp is that of collectives that only move elements.
var noOp benchOp

// formula says, by plain Go alone, what every element must be: a function of rank, index and iteration. Values are small whole
// numbers, so that results are exact whatever the element type. Iteration 0 is all zeros, which stay what they are
// however often they are reduced in place. scripts/bench/peers has the same one.
type formula struct {
	op    benchOp
	ranks int
}

// value is a rank's element i.
func (f formula) value(rank, i, iteration int) int64 {
	if iteration == 0 {
		return 0
	}
	n := int64(mixed(uint32((iteration*maxBenchRanks+rank)*patternPeriod+i%patternPeriod)) % 8)
	switch { // bfloat16 has whole numbers up to 256 and float16 powers of two up to 2^15; a product of more is infinite in any order
	case f.op == noOp:
		return n
	case f.op == opProd && rank < 32:
		return 1 + n%2
	case f.op == opProd:
		return 1
	case f.ranks*7 <= 256:
		return n
	case rank < 256:
		return n % 2
	}
	return 0
}

// mixed is the last step of MurmurHash3 (Appleby, fmix32): neighbours have nothing in common.
func mixed(h uint32) uint32 {
	h ^= h >> 16
	h *= 0x85ebca6b
	h ^= h >> 13
	h *= 0xc2b2ae35
	return h ^ h>>16
}

// pattern is one period of a rank's values.
func (f formula) pattern(rank, iteration int) []int64 {
	p := make([]int64, patternPeriod)
	for i := range p {
		p[i] = f.value(rank, i, iteration)
	}
	return p
}

// reduced is what the patterns of ranks 0 to last make together.
func (f formula) reduced(last, iteration int) []int64 {
	p := f.pattern(0, iteration)
	for rank := 1; rank <= last; rank++ {
		for i, x := range f.pattern(rank, iteration) {
			switch f.op {
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
