package vec

import "math"

// RoundBFloat16 is dst = x, rounded to the nearest bfloat16, of two as near to the even one. Beyond the largest that
// is infinity. A NaN stays one and keeps its sign.
func RoundBFloat16(dst, x []float32) { each2(best.roundBFloat16, dst, x) }

// ToBFloat16 is RoundBFloat16 with 16-bit results.
func ToBFloat16(dst []uint16, x []float32) {
	if len(x) != len(dst) {
		panic(badLength)
	}
	for len(dst) > piece {
		best.toBFloat16(dst[:piece], x[:piece])
		dst, x = dst[piece:], x[piece:]
	}
	best.toBFloat16(dst, x)
}

// FromBFloat16 is dst = x, exactly.
func FromBFloat16(dst []float32, x []uint16) {
	if len(x) != len(dst) {
		panic(badLength)
	}
	for len(dst) > piece {
		best.fromBFloat16(dst[:piece], x[:piece])
		dst, x = dst[piece:], x[piece:]
	}
	best.fromBFloat16(dst, x)
}

func roundBFloat16(dst, x []float32) {
	for i, v := range x {
		dst[i] = math.Float32frombits(uint32(bfloat16(v)) << 16)
	}
}

func toBFloat16(dst []uint16, x []float32) {
	for i, v := range x {
		dst[i] = bfloat16(v)
	}
}

func fromBFloat16(dst []float32, x []uint16) {
	for i, v := range x {
		dst[i] = math.Float32frombits(uint32(v) << 16)
	}
}

func bfloat16(v float32) uint16 {
	bits := math.Float32bits(v)
	if v != v {
		return uint16(bits>>16 | 0x40) // quiet, as its payload may lie in the lower half only
	}
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}

// RoundFloat16 is dst = x, rounded to the nearest half, of two as near to the even one. Beyond 65504, the largest,
// that is infinity. A NaN stays one and keeps its sign.
func RoundFloat16(dst, x []float32) { each2(best.roundFloat16, dst, x) }

// ToFloat16 is RoundFloat16 with 16-bit results.
func ToFloat16(dst []uint16, x []float32) {
	if len(x) != len(dst) {
		panic(badLength)
	}
	for len(dst) > piece {
		best.toFloat16(dst[:piece], x[:piece])
		dst, x = dst[piece:], x[piece:]
	}
	best.toFloat16(dst, x)
}

// FromFloat16 is dst = x, exactly. A NaN becomes a quiet one.
func FromFloat16(dst []float32, x []uint16) {
	if len(x) != len(dst) {
		panic(badLength)
	}
	for len(dst) > piece {
		best.fromFloat16(dst[:piece], x[:piece])
		dst, x = dst[piece:], x[piece:]
	}
	best.fromFloat16(dst, x)
}

func roundFloat16(dst, x []float32) {
	for i, v := range x {
		dst[i] = fromHalf(half(v))
	}
}

func toFloat16(dst []uint16, x []float32) {
	for i, v := range x {
		dst[i] = half(v)
	}
}

func fromFloat16(dst []float32, x []uint16) {
	for i, v := range x {
		dst[i] = fromHalf(v)
	}
}

// half is v as an IEEE 754 half: 1 bit of sign, 5 of exponent, 10 of fraction.
func half(v float32) uint16 {
	const (
		infinity  = 0x7f800000
		overflow  = 0x477ff000 // 65520, halfway between 65504 and the next power of two
		normal    = 0x38800000 // 2^-14, the smallest normal half
		subnormal = 0x3f000000 // 0.5, whose last bit is worth 2^-24, as that of subnormal halves
		rebias    = (127 - 15) << 23
	)
	bits := math.Float32bits(v)
	sign := uint16(bits >> 16 & 0x8000)
	bits &= 0x7fffffff
	switch {
	case bits > infinity:
		return sign | 0x7e00 | uint16(bits>>13&0x3ff)
	case bits >= overflow:
		return sign | 0x7c00
	case bits < normal: // the addition rounds
		return sign | uint16(math.Float32bits(math.Float32frombits(bits)+0.5)-subnormal)
	}
	return sign | uint16((bits-rebias+0xfff+bits>>13&1)>>13)
}

func fromHalf(h uint16) float32 {
	const (
		rebias   = 0x1p112 // float32's exponent bias is 127, that of a half 15
		infinity = 0x7c00 << 13
		quiet    = 0x00400000
	)
	magnitude := uint32(h&0x7fff) << 13
	bits := math.Float32bits(math.Float32frombits(magnitude) * rebias) // right for subnormal halves, too
	switch {
	case magnitude > infinity:
		bits = magnitude | 0x7f800000 | quiet
	case magnitude == infinity:
		bits = 0x7f800000
	}
	return math.Float32frombits(bits | uint32(h&0x8000)<<16)
}
