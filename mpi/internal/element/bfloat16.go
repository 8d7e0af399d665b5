package element

import "math"

// BF16 is the upper half of a float32, in Go as its 16 bits: 1 of sign, 8 of
// exponent, 7 of fraction. Its Type is BFloat16.
type BF16 uint16

// Float32 is h, exactly.
func (h BF16) Float32() float32 { return math.Float32frombits(uint32(h) << 16) }

// ToBFloat16 rounds f to the nearest bfloat16, of two as near to the even one. Beyond the
// largest that is infinity. A NaN stays one and keeps its sign.
func ToBFloat16(f float32) BF16 {
	bits := math.Float32bits(f)
	if f != f {
		return BF16(bits>>16 | 0x40) // quiet, as its payload may lie in the lower half only
	}
	return BF16((bits + 0x7fff + bits>>16&1) >> 16)
}
