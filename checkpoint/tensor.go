package checkpoint

import (
	"encoding/binary"
	"fmt"
	"math"
)

// maxRank bounds the number of dimensions of a tensor.
const maxRank = 32

// Tensor is a named array. Data is row-major and little-endian; the state that holds
// the tensor owns it.
type Tensor struct {
	Name  string // 1 to 256 bytes of UTF-8 without control characters
	DType string // bool, float16, bfloat16, float32, float64, or int or uint with 8, 16, 32 or 64
	Shape []int  // empty: a scalar; a dimension may be 0
	Data  []byte
}

// elemSize returns the bytes of one element of a dtype, and false for a dtype that is unknown.
func elemSize(dtype string) (int, bool) {
	switch dtype {
	case "bool", "int8", "uint8":
		return 1, true
	case "int16", "uint16", "float16", "bfloat16":
		return 2, true
	case "int32", "uint32", "float32":
		return 4, true
	case "int64", "uint64", "float64":
		return 8, true
	}
	return 0, false
}

// Float32Tensor copies v into a tensor. It panics where the shape does not hold len(v) elements.
func Float32Tensor(name string, shape []int, v []float32) Tensor {
	size, err := byteSize("float32", shape)
	if err != nil || size != 4*int64(len(v)) {
		panic("checkpoint: shape does not fit the values")
	}
	data := make([]byte, 4*len(v))
	for i, x := range v {
		binary.LittleEndian.PutUint32(data[4*i:], math.Float32bits(x))
	}
	return Tensor{Name: name, DType: "float32", Shape: append([]int{}, shape...), Data: data}
}

// Float32s copies t into dst; an error where type or size differ.
func (t Tensor) Float32s(dst []float32) error {
	if t.DType != "float32" {
		return fmt.Errorf("tensor %q holds %s, not float32", t.Name, t.DType)
	}
	if len(t.Data) != 4*len(dst) {
		return fmt.Errorf("tensor %q holds %d bytes (shape %v), not %d float32 values", t.Name, len(t.Data), t.Shape, len(dst))
	}
	for i := range dst {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(t.Data[4*i:]))
	}
	return nil
}

// byteSize is what a tensor of that type and shape takes, checked for overflow.
func byteSize(dtype string, shape []int) (int64, error) {
	elem, ok := elemSize(dtype)
	if !ok {
		return 0, fmt.Errorf("dtype %q is unknown", dtype)
	}
	if len(shape) > maxRank {
		return 0, fmt.Errorf("%d dimensions, at most %d are allowed", len(shape), maxRank)
	}
	size, empty := int64(elem), false
	for _, dim := range shape {
		switch {
		case dim < 0:
			return 0, fmt.Errorf("shape %v has a negative dimension", shape)
		case dim == 0:
			empty = true
		case size > maxRawBytes/int64(dim):
			size = maxRawBytes + 1 // too large, unless a later dimension is 0
		default:
			size *= int64(dim)
		}
	}
	if empty {
		return 0, nil
	}
	if size > maxRawBytes {
		return 0, fmt.Errorf("shape %v of %s is larger than %d bytes", shape, dtype, int64(maxRawBytes))
	}
	return size, nil
}
