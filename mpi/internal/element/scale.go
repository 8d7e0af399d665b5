package element

import (
	"fmt"
	"math"
)

// Scale multiplies every element of dst by factor, for PreMulSum. Floats and complex numbers are multiplied in their own
// precision, 16-bit ones in float32, as PyTorch multiplies by a number. Integers wrap around; for
// them factor must be a whole number that the type holds, up to 2^53, so that nothing is rounded
// in a way that depends on the machine. Bools have no multiple. dst is whole elements.
func Scale(t Type, dst []byte, factor float64) error {
	switch t {
	case Float32, Complex64: // both parts
		scale(view[float32](dst), float32(factor))
	case Float64, Complex128:
		scale(view[float64](dst), factor)
	case Float16:
		for i, x := range view[F16](dst) {
			view[F16](dst)[i] = ToFloat16(x.Float32() * float32(factor))
		}
	case BFloat16:
		for i, x := range view[BF16](dst) {
			view[BF16](dst)[i] = ToBFloat16(x.Float32() * float32(factor))
		}
	case Int8:
		return scaleWhole[int8](t, dst, factor)
	case Int16:
		return scaleWhole[int16](t, dst, factor)
	case Int32:
		return scaleWhole[int32](t, dst, factor)
	case Int64:
		return scaleWhole[int64](t, dst, factor)
	case Uint8:
		return scaleWhole[uint8](t, dst, factor)
	case Uint16:
		return scaleWhole[uint16](t, dst, factor)
	case Uint32:
		return scaleWhole[uint32](t, dst, factor)
	case Uint64:
		return scaleWhole[uint64](t, dst, factor)
	default:
		return fmt.Errorf("scale elements: %v cannot be multiplied", t)
	}
	return nil
}

func scaleWhole[T integer](t Type, dst []byte, factor float64) error {
	const exact = 1 << 53
	if factor != math.Trunc(factor) || math.Abs(factor) > exact || float64(T(int64(factor))) != factor {
		return fmt.Errorf("scale elements: %v by %v: the factor must be a whole number that %v holds, at most 2^53; other factors need a float type",
			t, factor, t)
	}
	scale(view[T](dst), T(int64(factor)))
	return nil
}

func scale[T integer | float](dst []T, factor T) {
	for i := range dst {
		dst[i] *= factor
	}
}
