package manifest

import (
	"fmt"

	"ddpbatch/checkpoint/internal/chunk"
)

// dtypes are the element types that a tensor may have, under PyTorch's names.
var dtypes = map[string]struct {
	size   int // bytes of an element
	layout chunk.Layout
}{
	"bool": {1, chunk.Layout{Width: 1}}, "int8": {1, chunk.Layout{Width: 1}}, "uint8": {1, chunk.Layout{Width: 1}},
	"int16": {2, chunk.Layout{Width: 2}}, "uint16": {2, chunk.Layout{Width: 2}},
	"int32": {4, chunk.Layout{Width: 4}}, "uint32": {4, chunk.Layout{Width: 4}},
	"int64": {8, chunk.Layout{Width: 8}}, "uint64": {8, chunk.Layout{Width: 8}},
	// One byte has one plane, and turning its bits only renames the symbols.
	"float8_e4m3fn": {1, chunk.Layout{Width: 1}}, "float8_e5m2": {1, chunk.Layout{Width: 1}},
	"float16": {2, chunk.Layout{Width: 2, Float: true}}, "bfloat16": {2, chunk.Layout{Width: 2, Float: true}},
	"float32": {4, chunk.Layout{Width: 4, Float: true}}, "float64": {8, chunk.Layout{Width: 8, Float: true}},
	"complex64": {8, chunk.Layout{Width: 4, Float: true}}, // pairs of float32
}

// ElemSize returns the bytes of one element, and false for a dtype that is unknown.
func ElemSize(dtype string) (int, bool) {
	t, ok := dtypes[dtype]
	return t.size, ok
}

// Layout says how chunks of a dtype are taken apart, and false for a dtype that is unknown. Its width divides the element
// size.
func Layout(dtype string) (chunk.Layout, bool) {
	t, ok := dtypes[dtype]
	return t.layout, ok
}

// ByteSize returns the bytes that a tensor takes, at most MaxRawBytes.
func ByteSize(dtype string, shape []int) (int64, error) {
	elem, ok := ElemSize(dtype)
	if !ok {
		return 0, fmt.Errorf("dtype %s is unknown", quote(dtype))
	}
	if len(shape) > MaxDims {
		return 0, fmt.Errorf("%d dimensions, at most %d are allowed", len(shape), MaxDims)
	}
	size, empty := int64(elem), false
	for _, dim := range shape {
		switch {
		case dim < 0:
			return 0, fmt.Errorf("shape %v has a negative dimension", shape)
		case dim == 0:
			empty = true
		case size > MaxRawBytes/int64(dim):
			size = MaxRawBytes + 1 // too large, unless a later dimension is 0
		default:
			size *= int64(dim)
		}
	}
	if empty {
		return 0, nil
	}
	if size > MaxRawBytes {
		return 0, fmt.Errorf("shape %v of %s is larger than %d bytes", shape, dtype, int64(MaxRawBytes))
	}
	return size, nil
}
