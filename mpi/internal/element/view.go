package element

import "unsafe"

type integer interface {
	int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64
}

type float interface{ float32 | float64 }

const badLength = "element: operands of different lengths"

// operands are a kernel's arguments as elements.
func operands[T any](dst, a, b []byte) (d, x, y []T) {
	if len(a) != len(dst) || len(b) != len(dst) {
		panic(badLength)
	}
	d = view[T](dst)
	return d, view[T](a)[:len(d)], view[T](b)[:len(d)] // cut so that the compiler drops bounds checks
}

// view is the memory of b as elements.
func view[T any](b []byte) []T {
	var zero T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(zero)))
}
