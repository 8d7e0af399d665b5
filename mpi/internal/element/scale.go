package element

import (
	"fmt"
	"math"
)

// Divide divides every element of dst by n, for Avg. n is the number of ranks, at least 1. It really divides, as PyTorch does,
// rather than multiplying by a rounded 1/n. Integers are truncated toward zero, as in Go's division. 16-bit floats are divided as
// float32, and complex numbers by part. Bools cannot be averaged. dst consists of whole elements.
func Divide(t Type, dst []byte, n int) error {
	switch t {
	case Float32, Complex64:
		divideBlockwise(available.divide32, dst, float32(n))
	case Float64, Complex128:
		divideBlockwise(available.divide64, dst, float64(n))
	case Float16:
		for i, x := range View[F16](dst) {
			View[F16](dst)[i] = ToFloat16(x.Float32() / float32(n))
		}
	case BFloat16:
		for i, x := range View[BF16](dst) {
			View[BF16](dst)[i] = ToBFloat16(x.Float32() / float32(n))
		}
	default:
		whole := wholeTypes[t]
		if whole.divide == nil {
			return fmt.Errorf("divide elements: %v has no average", t)
		}
		whole.divide(dst, n)
	}
	return nil
}

// wholeTypes has the functions of Divide and Scale for integers; nil for all other types.
var wholeTypes = [len(types)]struct {
	divide func(dst []byte, n int)
	scale  func(dst []byte, factor float64) bool
}{
	Int8: {divideSigned[int8], scaleWhole[int8]}, Int16: {divideSigned[int16], scaleWhole[int16]},
	Int32: {divideSigned[int32], scaleWhole[int32]}, Int64: {divideSigned[int64], scaleWhole[int64]},
	Uint8: {divideUnsigned[uint8], scaleWhole[uint8]}, Uint16: {divideUnsigned[uint16], scaleWhole[uint16]},
	Uint32: {divideUnsigned[uint32], scaleWhole[uint32]}, Uint64: {divideUnsigned[uint64], scaleWhole[uint64]},
}

// divideBlockwise uses routine, if it is not nil, for whole blocks, and Go for the rest.
func divideBlockwise[T float](routine func(dst *byte, n int, by T), dst []byte, by T) {
	for routine != nil && wholeBlocks(len(dst)) > 0 {
		n := piece(len(dst))
		writes(dst[:n])
		routine(&dst[0], n, by)
		dst = dst[n:]
	}
	divide(View[T](dst), by)
}

func divide[T float](dst []T, n T) {
	for i := range dst {
		dst[i] /= n
	}
}

// divideSigned divides 64-bit integers, because n may not fit into T.
func divideSigned[T integer](dst []byte, n int) {
	for i, x := range View[T](dst) {
		View[T](dst)[i] = T(int64(x) / int64(n))
	}
}

func divideUnsigned[T integer](dst []byte, n int) {
	for i, x := range View[T](dst) {
		View[T](dst)[i] = T(uint64(x) / uint64(n))
	}
}

// Scale multiplies every element of dst by factor, for PreMulSum. Floats and complex numbers are multiplied in their own precision,
// and 16-bit floats as float32, as PyTorch does. Integers wrap around. For them, factor must be a whole number that the type can
// hold, up to 2^53, so that nothing is rounded in a way that depends on the machine. Bools cannot be multiplied. dst consists of
// whole elements.
func Scale(t Type, dst []byte, factor float64) error {
	switch t {
	case Float32, Complex64: // both parts
		scale(View[float32](dst), float32(factor))
	case Float64, Complex128:
		scale(View[float64](dst), factor)
	case Float16:
		for i, x := range View[F16](dst) {
			View[F16](dst)[i] = ToFloat16(x.Float32() * float32(factor))
		}
	case BFloat16:
		for i, x := range View[BF16](dst) {
			View[BF16](dst)[i] = ToBFloat16(x.Float32() * float32(factor))
		}
	default:
		switch whole := wholeTypes[t]; {
		case whole.scale == nil:
			return fmt.Errorf("scale elements: %v cannot be multiplied", t)
		case !whole.scale(dst, factor):
			return fmt.Errorf("scale elements: %v by %v: the factor must be a whole number that %v can hold, at most 2^53; other "+
				"factors need a float type",
				t, factor, t)
		}
	}
	return nil
}

// scaleWhole does nothing, and returns false, if T cannot hold the factor.
func scaleWhole[T integer](dst []byte, factor float64) bool {
	const exact = 1 << 53
	if factor != math.Trunc(factor) || math.Abs(factor) > exact || float64(T(int64(factor))) != factor {
		return false
	}
	scale(View[T](dst), T(int64(factor)))
	return true
}

func scale[T integer | float](dst []T, factor T) {
	for i := range dst {
		dst[i] *= factor
	}
}
