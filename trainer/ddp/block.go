package ddp

import (
	"encoding/binary"
	"math"
)

// A block, of up to blockSize elements, is quantized with a scale of its own, and travels as a record: the scale, a float32, and an int8
// for each element.
const (
	blockSize = 256
	scaleSize = 4
)

// scaleOf is the factor of a record's elements; NaN marks a block that is not finite, or has elements from 2^127 on.
func scaleOf(record []byte) float32 {
	return math.Float32frombits(binary.LittleEndian.Uint32(record))
}

// lost tells that a record is of a block marked so.
func lost(record []byte) bool { return math.IsNaN(float64(scaleOf(record))) }

// quantize writes x as a record: x / scale, rounded to the nearest, where the largest magnitude is 127 scales. The
// error is at most half a scale, but that a block all below 2^-121 is written as zeros.
func quantize(record []byte, x []float32) {
	top := topBits(x)
	elements := record[scaleSize:]
	scale, inverse := math.Float32frombits(top)/127, 127/math.Float32frombits(top)
	switch {
	case top >= 0x7f000000: // 2^127: 127 scales, rounded, may be infinite
		scale, inverse = float32(math.NaN()), 0
	case math.IsInf(float64(inverse), 0):
		scale, inverse = 0, 0
	}
	binary.LittleEndian.PutUint32(record, math.Float32bits(scale))
	if inverse == 0 {
		clear(elements)
		return
	}
	for i, v := range x {
		// Numbers from 2^23 to 2^24 have no fraction: the sum is rounded to one, and its lowest byte is the int8.
		const round = 3 << 22
		elements[i] = byte(math.Float32bits(float32(v*inverse) + round))
	}
}

// topBits is the bits of the largest magnitude: they are ordered as magnitudes are, infinity and then NaN last.
func topBits(x []float32) uint32 {
	const magnitude = 1<<31 - 1
	var a, b, c, d uint32 // apart, for the processor to go on with all at once
	for ; len(x) >= 4; x = x[4:] {
		v := (*[4]float32)(x)
		a = max(a, math.Float32bits(v[0])&magnitude)
		b = max(b, math.Float32bits(v[1])&magnitude)
		c = max(c, math.Float32bits(v[2])&magnitude)
		d = max(d, math.Float32bits(v[3])&magnitude)
	}
	for _, v := range x {
		a = max(a, math.Float32bits(v)&magnitude)
	}
	return max(a, b, c, d)
}

// addDequantized adds a record, times factor, to dst.
func addDequantized(dst []float32, record []byte, factor float32) {
	scale := scaleOf(record) * factor
	for i, q := range record[scaleSize:][:len(dst)] {
		dst[i] += float32(scale * float32(int8(q)))
	}
}
