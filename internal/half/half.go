package half

import "math"

// ToFloat16 returns f rounded to float16, whose largest number is 65504.
func ToFloat16(f float32) uint16 {
	const (
		infinity  = 0x7f800000
		overflow  = 0x477ff000 // 65520, halfway between 65504 and the next power of two
		normal    = 0x38800000 // 2^-14, the smallest normal float16
		subnormal = 0x3f000000 // 0.5, whose last bit is worth 2^-24, like that of subnormal float16s
		rebias    = (127 - 15) << 23
	)
	bits := math.Float32bits(f)
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

// FromFloat16 returns the number with the bits h of a float16.
func FromFloat16(h uint16) float32 {
	const (
		rebias   = 0x1p112 // the exponent bias of float32 is 127, that of float16 is 15
		infinity = 0x7c00 << 13
		quiet    = 0x00400000
	)
	magnitude := uint32(h&0x7fff) << 13
	bits := math.Float32bits(math.Float32frombits(magnitude) * rebias) // also right for subnormal numbers
	switch {
	case magnitude > infinity:
		bits = magnitude | 0x7f800000 | quiet
	case magnitude == infinity:
		bits = 0x7f800000
	}
	return math.Float32frombits(bits | uint32(h&0x8000)<<16)
}

// ToBFloat16 returns f rounded to bfloat16.
func ToBFloat16(f float32) uint16 {
	bits := math.Float32bits(f)
	if f != f {
		return uint16(bits>>16 | 0x40) // quiet, as its payload may be only in the lower half
	}
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}

// FromBFloat16 returns the number with the bits h of a bfloat16.
func FromBFloat16(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// ToFloat16s sets dst to x, rounded to float16.
func ToFloat16s(dst []uint16, x []float32) { convert(toFloat16AVX2, toFloat16s, dst, x) }

// FromFloat16s sets dst to x, converted from float16.
func FromFloat16s(dst []float32, x []uint16) { convert(fromFloat16AVX2, fromFloat16s, dst, x) }

// RoundFloat16s sets dst to x, rounded to numbers that are exact in float16.
func RoundFloat16s(dst, x []float32) { convert(roundFloat16AVX2, roundFloat16s, dst, x) }

// ToBFloat16s sets dst to x, rounded to bfloat16.
func ToBFloat16s(dst []uint16, x []float32) { convert(toBFloat16AVX2, toBFloat16s, dst, x) }

// FromBFloat16s sets dst to x, converted from bfloat16.
func FromBFloat16s(dst []float32, x []uint16) { convert(fromBFloat16AVX2, fromBFloat16s, dst, x) }

// RoundBFloat16s sets dst to x, rounded to numbers that are exact in bfloat16.
func RoundBFloat16s(dst, x []float32) { convert(roundBFloat16AVX2, roundBFloat16s, dst, x) }

// piece is how many elements assembly converts at once. Go cannot interrupt assembly, so the garbage collector waits for it.
const piece = 1 << 17

// convert converts x to dst: eights by assembly, as many as fit, if this build and CPU have it, and the rest by loop.
func convert[D, X uint16 | float32](eights, loop func(dst []D, x []X), dst []D, x []X) {
	if len(x) != len(dst) {
		panic("half: slice lengths do not match")
	}
	for assembly && len(dst) >= 8 {
		n := min(len(dst)&^7, piece)
		eights(dst[:n], x[:n])
		dst, x = dst[n:], x[n:]
	}
	loop(dst, x)
}

func toFloat16s(dst []uint16, x []float32) {
	dst = dst[:len(x)]
	for i, v := range x {
		dst[i] = ToFloat16(v)
	}
}

func fromFloat16s(dst []float32, x []uint16) {
	dst = dst[:len(x)]
	for i, v := range x {
		dst[i] = FromFloat16(v)
	}
}

func roundFloat16s(dst, x []float32) {
	dst = dst[:len(x)]
	for i, v := range x {
		dst[i] = FromFloat16(ToFloat16(v))
	}
}

func toBFloat16s(dst []uint16, x []float32) {
	dst = dst[:len(x)]
	for i, v := range x {
		dst[i] = ToBFloat16(v)
	}
}

func fromBFloat16s(dst []float32, x []uint16) {
	dst = dst[:len(x)]
	for i, v := range x {
		dst[i] = FromBFloat16(v)
	}
}

func roundBFloat16s(dst, x []float32) {
	dst = dst[:len(x)]
	for i, v := range x {
		dst[i] = FromBFloat16(ToBFloat16(v))
	}
}
