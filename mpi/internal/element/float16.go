package element

import "math"

// F16 is an IEEE 754 half-precision number, in Go as its 16 bits: 1 of sign, 5
// of exponent, 10 of fraction. Its Type is Float16.
type F16 uint16

// Float32 is h, exactly. A NaN keeps its sign and payload.
func (h F16) Float32() float32 {
	const (
		rebias   = 0x1p112 // float32's exponent bias is 127, that of a half 15
		infinity = 0x7c00 << 13
	)
	magnitude := uint32(h&0x7fff) << 13
	bits := math.Float32bits(math.Float32frombits(magnitude) * rebias) // right for subnormal halves, too
	if magnitude >= infinity {
		bits = magnitude | 0x7f800000
	}
	return math.Float32frombits(bits | uint32(h&0x8000)<<16)
}

// ToFloat16 rounds f to the nearest half, of two as near to the even one.
// Beyond the largest (65504) that is infinity. A NaN stays one and keeps its sign.
func ToFloat16(f float32) F16 {
	const (
		infinity  = 0x7f800000
		overflow  = 0x477ff000 // 65520, halfway between 65504 and the next power of two
		normal    = 0x38800000 // 2^-14, the smallest normal half
		subnormal = 0x3f000000 // 0.5, whose last bit is worth 2^-24, as that of subnormal halves
		rebias    = (127 - 15) << 23
	)
	bits := math.Float32bits(f)
	sign := F16(bits >> 16 & 0x8000)
	bits &= 0x7fffffff
	switch {
	case bits > infinity:
		return sign | 0x7e00 | F16(bits>>13&0x3ff)
	case bits >= overflow:
		return sign | 0x7c00
	case bits < normal: // the addition rounds
		return sign | F16(math.Float32bits(math.Float32frombits(bits)+0.5)-subnormal)
	}
	return sign | F16((bits-rebias+0xfff+bits>>13&1)>>13)
}

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
