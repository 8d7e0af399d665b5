package collbench

import (
	"context"
	"math"
	"math/bits"

	"ddpbatch/mpi"
)

// patternPeriod is the number of elements after which a pattern repeats. It is a prime, so that pieces of messages, whose lengths are
// powers of two, do not look right in each other's places.
const patternPeriod = 4093

// noOp is the operation of collectives that only move elements.
var noOp operation

// formula computes, in plain Go, what every element must be: a function of rank, index and iteration. Values are small whole
// numbers, so that results are exact for every element type. In iteration 0 all values are 0, which do not change
// however often they are reduced in place. scripts/bench/peers has the same formula.
type formula struct {
	op    operation
	ranks int
}

// value returns a rank's element i.
func (f formula) value(rank, i, iteration int) int64 {
	if iteration == 0 {
		return 0
	}
	n := int64(mixed(uint32((iteration*maxRanks+rank)*patternPeriod+i%patternPeriod)) % 8)
	switch { // bfloat16 represents whole numbers up to 256, and float16 powers of two up to 2^15; larger products are infinite in any order
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

// mixed is the last step of MurmurHash3 (Appleby, fmix32), after which neighboring numbers look unrelated.
func mixed(h uint32) uint32 {
	h ^= h >> 16
	h *= 0x85ebca6b
	h ^= h >> 13
	h *= 0xc2b2ae35
	return h ^ h>>16
}

// pattern returns one period of a rank's values.
func (f formula) pattern(rank, iteration int) []int64 {
	p := make([]int64, patternPeriod)
	for i := range p {
		p[i] = f.value(rank, i, iteration)
	}
	return p
}

// reduced returns the reduction of the patterns of ranks 0 to last.
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

// converted returns a pattern converted to an element type.
func converted[T mpi.Number](p []int64, of func(int64) T) []T {
	out := make([]T, len(p))
	for i, x := range p {
		out[i] = of(x)
	}
	return out
}

// spread fills buf with a pattern.
func spread[T mpi.Number](buf, pattern []T) {
	for n := 0; n < len(buf); {
		n += copy(buf[n:], pattern)
	}
}

// countWrong counts the elements of buf that differ from the pattern, beginning with the pattern's element at.
func countWrong[T mpi.Number](buf, pattern []T, at int) (wrong int64) {
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

// operation is a reduce operation.
type operation struct {
	name string
	mpi  mpi.Op
}

var (
	opSum  = operation{"sum", mpi.Sum}
	opProd = operation{"prod", mpi.Product}
	opMin  = operation{"min", mpi.Min}
	opMax  = operation{"max", mpi.Max}
)

var ops = []operation{opSum, opProd, opMin, opMax}

// elementType is an element type.
type elementType struct {
	name  string
	width int64 // bytes
	open  func(context.Context, *bench) (call func(count int) timedCall, err error)
}

var elementTypes = []elementType{
	plain[float32]("float32", 4), plain[float64]("float64", 8),
	newElement("float16", 2, float16Of), newElement("bfloat16", 2, bfloat16Of),
	plain[int8]("int8", 1), plain[int16]("int16", 2), plain[int32]("int32", 4), plain[int64]("int64", 8),
	plain[uint8]("uint8", 1), plain[uint16]("uint16", 2), plain[uint32]("uint32", 4), plain[uint64]("uint64", 8),
}

// arithmetic is the set of types to which Go itself converts whole numbers.
type arithmetic interface {
	float32 | float64 | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64
}

func plain[T arithmetic](name string, width int64) elementType {
	return newElement(name, width, func(x int64) T { return T(x) })
}

// float16Of converts a whole number to binary16 of IEEE 754. The number must be exact in binary16, or too large for it, which gives
// infinity. It shares no code with what is measured.
func float16Of(x int64) mpi.Float16 {
	const exponentBias, exponentBits, mantissaBits = 15, 5, 10
	if x == 0 {
		return 0
	}
	sign := mpi.Float16(0)
	if x < 0 {
		sign, x = 1<<15, -x
	}
	exponent := bits.Len64(uint64(x)) - 1
	if exponent > exponentBias {
		return sign | (1<<exponentBits-1)<<mantissaBits
	}
	return sign | mpi.Float16(exponent+exponentBias)<<mantissaBits | mpi.Float16(x<<mantissaBits>>exponent)&(1<<mantissaBits-1)
}

// bfloat16Of converts a whole number that is exact in bfloat16, the upper half of a float32.
func bfloat16Of(x int64) mpi.BFloat16 { return mpi.BFloat16(math.Float32bits(float32(x)) >> 16) }

func newElement[T mpi.Number](name string, width int64, of func(int64) T) elementType {
	return elementType{name, width, func(ctx context.Context, b *bench) (func(int) timedCall, error) {
		s := &buffers[T]{b: b, of: of}
		err := s.alloc(ctx, int(b.o.largest()/width))
		return s.call, err
	}}
}
