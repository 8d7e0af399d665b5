package main

import (
	"context"
	"math"
	"math/bits"

	"ddpbatch/mpi"
)

// benchOp is a reduce operation.
type benchOp struct {
	name string
	mpi  mpi.Op
}

var (
	opSum  = benchOp{"sum", mpi.Sum}
	opProd = benchOp{"prod", mpi.Product}
	opMin  = benchOp{"min", mpi.Min}
	opMax  = benchOp{"max", mpi.Max}
)

var benchOps = []benchOp{opSum, opProd, opMin, opMax}

// benchElement is an element type.
type benchElement struct {
	name  string
	width int64 // bytes
	open  func(context.Context, *benchRank) (map[string]func(count int) benchCall, error)
}

var benchElements = []benchElement{
	plain[float32]("float32", 4), plain[float64]("float64", 8),
	newElement("float16", 2, float16Of), newElement("bfloat16", 2, bfloat16Of),
	plain[int8]("int8", 1), plain[int16]("int16", 2), plain[int32]("int32", 4), plain[int64]("int64", 8),
	plain[uint8]("uint8", 1), plain[uint16]("uint16", 2), plain[uint32]("uint32", 4), plain[uint64]("uint64", 8),
}

// arithmetic are the types that Go itself converts whole numbers to.
type arithmetic interface {
	float32 | float64 | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64
}

func plain[T arithmetic](name string, width int64) benchElement {
	return newElement(name, width, func(x int64) T { return T(x) })
}

// float16Of converts a whole number that binary16 of IEEE 754 holds, or one too large for it, which is infinite there; it
// shares nothing with what is measured.
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

// bfloat16Of converts a whole number that has no more bits than bfloat16, the upper half of a float32.
func bfloat16Of(x int64) mpi.BFloat16 { return mpi.BFloat16(math.Float32bits(float32(x)) >> 16) }

func newElement[T mpi.Number](name string, width int64, of func(int64) T) benchElement {
	return benchElement{name, width, func(ctx context.Context, b *benchRank) (map[string]func(int) benchCall, error) {
		s := &benchBuffers[T]{b: b, of: of}
		err := s.alloc(ctx, int(b.o.largest()/width))
		return s.calls(), err
	}}
}

// benchBuffers are a rank's buffers for the largest size; calls of smaller ones use their beginnings.
type benchBuffers[T mpi.Number] struct {
	b       *benchRank
	of      func(int64) T
	out, in []T // in: where a collective has another one than out
}

func (s *benchBuffers[T]) alloc(ctx context.Context, n int) (err error) {
	if s.out, err = s.buffer(ctx, n); err == nil && s.b.o.collective.twoBuffers {
		s.in, err = s.buffer(ctx, n)
	}
	return err
}

func (s *benchBuffers[T]) buffer(ctx context.Context, n int) ([]T, error) {
	if s.b.o.alloc {
		return mpi.Alloc[T](ctx, s.b.comm, n)
	}
	return make([]T, n), nil
}

// formula is the one that this collective's buffers are filled by.
func (s *benchBuffers[T]) formula() formula {
	f := formula{ranks: s.b.ranks}
	if s.b.o.collective.reduces {
		f.op = s.b.o.op
	}
	return f
}

// own is a rank's pattern.
func (s *benchBuffers[T]) own(rank, iteration int) []T {
	return converted(s.formula().pattern(rank, iteration), s.of)
}

// reduced is what the patterns of ranks 0 to last make together.
func (s *benchBuffers[T]) reduced(last, iteration int) []T {
	return converted(s.formula().reduced(last, iteration), s.of)
}

// spoil fills buf with what no pattern has.
func (s *benchBuffers[T]) spoil(buf []T) {
	spread(buf, converted(make([]int64, patternPeriod), func(int64) T { return s.of(-1) }), 0)
}
