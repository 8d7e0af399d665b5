package checkpoint

import (
	"encoding/binary"
	"fmt"
	"math"

	"ddpbatch/checkpoint/internal/manifest"
)

// ConvertTo copies t into dst, whatever type of floating-point numbers it has: float16 and bfloat16 fit exactly, float64 is rounded.
func (t Tensor) ConvertTo(dst []float32) error {
	size, known := manifest.ElemSize(t.DType)
	if !known || len(t.Data) != size*len(dst) {
		return fmt.Errorf("tensor %q holds %d bytes of %s, not %d numbers", t.Name, len(t.Data), t.DType, len(dst))
	}
	var number func(b []byte) float32
	switch t.DType {
	case "float32":
		return t.Float32s(dst)
	case "float64":
		number = func(b []byte) float32 { return float32(math.Float64frombits(binary.LittleEndian.Uint64(b))) }
	case "float16":
		number = func(b []byte) float32 { return halfToFloat(binary.LittleEndian.Uint16(b)) }
	case "bfloat16":
		number = func(b []byte) float32 { return math.Float32frombits(uint32(binary.LittleEndian.Uint16(b)) << 16) }
	default:
		return fmt.Errorf("tensor %q holds %s, no floating-point numbers", t.Name, t.DType)
	}
	for i := range dst {
		dst[i] = number(t.Data[i*size:])
	}
	return nil
}

// halfToFloat is the value of an IEEE 754 binary16.
func halfToFloat(h uint16) float32 {
	sign, exponent, fraction := uint32(h>>15)<<31, int(h>>10&31), uint32(h&1023)
	switch exponent {
	case 31: // infinity, NaN
		return math.Float32frombits(sign | 255<<23 | fraction<<13)
	case 0: // zero, subnormal
		return math.Float32frombits(sign) + float32(math.Copysign(float64(fraction)*0x1p-24, float64(int32(sign|1))))
	}
	return math.Float32frombits(sign | uint32(exponent+127-15)<<23 | fraction<<13)
}
