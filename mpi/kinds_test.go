package mpi

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// kind is an element type with a second, slow implementation of its arithmetic.
type kind[T Number] struct {
	label  string
	of     func(x int) T                    // exact, for x from 0 to 255
	random func(dice *rand.Rand) T          // values that are hard to add up
	fold   func(op Standard) func(a, b T) T // nil if there is no such operation
	scale  func(x T, factor int) T          // nil if there is no such operation
	divide func(x T, n int) T               // nil if there is no such operation
	bits   func(x T) (uint64, uint64)       // distinguishes values; all NaNs are equal
}

var (
	kindFloat32 = kind[float32]{
		label: "float32", of: func(x int) float32 { return float32(x) }, fold: foldFloat[float32],
		random: func(dice *rand.Rand) float32 { return float32(wild(dice)) },
		scale:  func(x float32, factor int) float32 { return x * float32(factor) },
		divide: func(x float32, n int) float32 { return x / float32(n) },
		bits:   func(x float32) (uint64, uint64) { return uint64(math.Float32bits(x)), 0 },
	}
	kindFloat64 = kind[float64]{
		label: "float64", of: func(x int) float64 { return float64(x) }, fold: foldFloat[float64], random: wild,
		scale:  func(x float64, factor int) float64 { return x * float64(factor) },
		divide: func(x float64, n int) float64 { return x / float64(n) },
		bits:   func(x float64) (uint64, uint64) { return math.Float64bits(x), 0 },
	}
	kindFloat16  = half("float16", ToFloat16, Float16.Float32)
	kindBFloat16 = half("bfloat16", ToBFloat16, BFloat16.Float32)
	kindBool     = kind[bool]{
		label: "bool", of: func(x int) bool { return x%2 == 1 }, fold: foldBool,
		random: func(dice *rand.Rand) bool { return dice.IntN(2) == 1 },
		bits: func(x bool) (uint64, uint64) {
			if x {
				return 1, 0
			}
			return 0, 0
		},
	}
	kindComplex64 = kind[complex64]{
		label: "complex64", of: func(x int) complex64 { return complex(float32(x), 0) }, fold: foldComplex[complex64],
		random: func(dice *rand.Rand) complex64 { return complex64(complex(wild(dice), wild(dice))) },
		scale: func(x complex64, factor int) complex64 {
			return complex(real(x)*float32(factor), imag(x)*float32(factor))
		},
		divide: func(x complex64, n int) complex64 { return complex(real(x)/float32(n), imag(x)/float32(n)) },
		bits: func(x complex64) (uint64, uint64) {
			return uint64(math.Float32bits(real(x))), uint64(math.Float32bits(imag(x)))
		},
	}
	kindComplex128 = kind[complex128]{
		label: "complex128", of: func(x int) complex128 { return complex(float64(x), 0) }, fold: foldComplex[complex128],
		random: func(dice *rand.Rand) complex128 { return complex(wild(dice), wild(dice)) },
		scale: func(x complex128, factor int) complex128 {
			return complex(real(x)*float64(factor), imag(x)*float64(factor))
		},
		divide: func(x complex128, n int) complex128 { return complex(real(x)/float64(n), imag(x)/float64(n)) },
		bits:   func(x complex128) (uint64, uint64) { return math.Float64bits(real(x)), math.Float64bits(imag(x)) },
	}
)

// wild returns a number of any sign and of widely varying size, so that the order of a sum shows in its bits.
func wild(dice *rand.Rand) float64 { return dice.NormFloat64() * math.Exp2(float64(dice.IntN(24)-12)) }

type wholeNumber interface {
	int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64
}

func whole[T wholeNumber](label string) kind[T] {
	return kind[T]{
		label: label, of: func(x int) T { return T(x) }, fold: foldWhole[T],
		random: func(dice *rand.Rand) T { return T(dice.Uint64()) },
		scale:  func(x T, factor int) T { return x * T(factor) },
		divide: func(x T, n int) T { return x / T(n) },
		bits:   func(x T) (uint64, uint64) { return uint64(x), 0 },
	}
}

// half computes in float32, and rounds each result.
func half[T Float16 | BFloat16](label string, round func(float32) T, widen func(T) float32) kind[T] {
	return kind[T]{
		label: label, of: func(x int) T { return round(float32(x)) },
		random: func(dice *rand.Rand) T { return round(float32(wild(dice) / 64)) },
		fold: func(op Standard) func(a, b T) T {
			f := foldFloat[float32](op)
			if f == nil {
				return nil
			}
			return func(a, b T) T { return round(f(widen(a), widen(b))) }
		},
		scale:  func(x T, factor int) T { return round(widen(x) * float32(factor)) },
		divide: func(x T, n int) T { return round(widen(x) / float32(n)) },
		bits:   func(x T) (uint64, uint64) { return uint64(x), 0 },
	}
}

func foldFloat[T float32 | float64](op Standard) func(a, b T) T {
	switch op {
	case Sum:
		return func(a, b T) T { return a + b }
	case Product:
		return func(a, b T) T { return a * b }
	case Min:
		return func(a, b T) T { return min(a, b) } // NaN and -0 are as The Go Programming Language Specification says, and as Min documents
	case Max:
		return func(a, b T) T { return max(a, b) }
	}
	return nil
}

func foldWhole[T wholeNumber](op Standard) func(a, b T) T {
	switch op {
	case Sum:
		return func(a, b T) T { return a + b }
	case Product:
		return func(a, b T) T { return a * b }
	case Min:
		return func(a, b T) T { return min(a, b) }
	case Max:
		return func(a, b T) T { return max(a, b) }
	case BAnd:
		return func(a, b T) T { return a & b }
	case BOr:
		return func(a, b T) T { return a | b }
	case BXor:
		return func(a, b T) T { return a ^ b }
	}
	return nil
}

func foldBool(op Standard) func(a, b bool) bool {
	switch op {
	case Sum, Max, BOr:
		return func(a, b bool) bool { return a || b }
	case Product, Min, BAnd:
		return func(a, b bool) bool { return a && b }
	case BXor:
		return func(a, b bool) bool { return a != b }
	}
	return nil
}

func foldComplex[T complex64 | complex128](op Standard) func(a, b T) T {
	switch op {
	case Sum:
		return func(a, b T) T { return a + b }
	case Product:
		return func(a, b T) T { return a * b }
	}
	return nil
}

// tree combines one element of every rank in canonical order, by the definition: neighbors are paired, level by level, and an element that
// is left over moves up unchanged. It overwrites xs.
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

// inputs makes n random elements for each rank. Every rank that passes the same seed gets the same.
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

// canonical returns what the inputs combine to in the canonical order.
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

// same returns an error that shows the first element whose bits are not those wanted. All NaNs are equal.
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
