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
