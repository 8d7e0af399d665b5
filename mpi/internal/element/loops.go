package element

import (
	"encoding/binary"
	"unsafe"
)

// Sums and products of integers wrap around.

func sum[T integer | float | complex64 | complex128](dst, a, b []byte) {
	d, x, y := operands[T](dst, a, b)
	for i := range d {
		d[i] = x[i] + y[i]
	}
}

// product of complex numbers may differ in the last bit between architectures: if the CPU multiplies and adds in one instruction,
// Go uses that (its specification, "Floating-point operators").
func product[T integer | float | complex64 | complex128](dst, a, b []byte) {
	d, x, y := operands[T](dst, a, b)
	for i := range d {
		d[i] = x[i] * y[i]
	}
}

// least, like Go's min, returns NaN if either operand is NaN, and counts -0 as less than 0.
func least[T integer | float](dst, a, b []byte) {
	d, x, y := operands[T](dst, a, b)
	for i := range d {
		d[i] = min(x[i], y[i])
	}
}

// greatest follows the same rules.
func greatest[T integer | float](dst, a, b []byte) {
	d, x, y := operands[T](dst, a, b)
	for i := range d {
		d[i] = max(x[i], y[i])
	}
}

// Bitwise operations are the same for every type, so these loops process words of 8 bytes.

func bitAnd(dst, a, b []byte) {
	d, x, y := operands[byte](dst, a, b)
	for len(d) >= 8 && len(x) >= 8 && len(y) >= 8 {
		binary.NativeEndian.PutUint64(d, binary.NativeEndian.Uint64(x)&binary.NativeEndian.Uint64(y))
		d, x, y = d[8:], x[8:], y[8:]
	}
	for i := range d {
		d[i] = x[i] & y[i]
	}
}

func bitOr(dst, a, b []byte) {
	d, x, y := operands[byte](dst, a, b)
	for len(d) >= 8 && len(x) >= 8 && len(y) >= 8 {
		binary.NativeEndian.PutUint64(d, binary.NativeEndian.Uint64(x)|binary.NativeEndian.Uint64(y))
		d, x, y = d[8:], x[8:], y[8:]
	}
	for i := range d {
		d[i] = x[i] | y[i]
	}
}

func bitXor(dst, a, b []byte) {
	d, x, y := operands[byte](dst, a, b)
	for len(d) >= 8 && len(x) >= 8 && len(y) >= 8 {
		binary.NativeEndian.PutUint64(d, binary.NativeEndian.Uint64(x)^binary.NativeEndian.Uint64(y))
		d, x, y = d[8:], x[8:], y[8:]
	}
	for i := range d {
		d[i] = x[i] ^ y[i]
	}
}

// A bool in a message is true if its byte is not 0. Go's own bools are 0 or 1, and so are the results of these loops. Sum and Max
// are "or", Product and Min "and", as in PyTorch's NCCL backend (getNcclReduceOp in ProcessGroupNCCL.cpp), which does not average
// bools either.

func or(dst, a, b []byte) {
	d, x, y := operands[uint8](dst, a, b)
	for i := range d {
		d[i] = truth(x[i]) | truth(y[i])
	}
}

func and(dst, a, b []byte) {
	d, x, y := operands[uint8](dst, a, b)
	for i := range d {
		d[i] = truth(x[i]) & truth(y[i])
	}
}

func xor(dst, a, b []byte) {
	d, x, y := operands[uint8](dst, a, b)
	for i := range d {
		d[i] = truth(x[i]) ^ truth(y[i])
	}
}

func truth(b uint8) uint8 {
	if b != 0 {
		return 1
	}
	return 0
}

// The 16-bit floats are combined as float32 and rounded after each step. For one sum, product or quotient, that equals the exact
// result rounded once, because float32 has more than twice as many bits (S. Figueroa, "When is double rounding innocuous?", 1995).
// The exceptions are products and quotients of bfloat16 that are subnormal as float32, too.

func sumF16(dst, a, b []byte) {
	d, x, y := operands[F16](dst, a, b)
	for i := range d {
		d[i] = ToFloat16(x[i].Float32() + y[i].Float32())
	}
}

func productF16(dst, a, b []byte) {
	d, x, y := operands[F16](dst, a, b)
	for i := range d {
		d[i] = ToFloat16(x[i].Float32() * y[i].Float32())
	}
}

func minF16(dst, a, b []byte) {
	d, x, y := operands[F16](dst, a, b)
	for i := range d {
		d[i] = ToFloat16(min(x[i].Float32(), y[i].Float32()))
	}
}

func maxF16(dst, a, b []byte) {
	d, x, y := operands[F16](dst, a, b)
	for i := range d {
		d[i] = ToFloat16(max(x[i].Float32(), y[i].Float32()))
	}
}

func sumBF16(dst, a, b []byte) {
	d, x, y := operands[BF16](dst, a, b)
	for i := range d {
		d[i] = ToBFloat16(x[i].Float32() + y[i].Float32())
	}
}

func productBF16(dst, a, b []byte) {
	d, x, y := operands[BF16](dst, a, b)
	for i := range d {
		d[i] = ToBFloat16(x[i].Float32() * y[i].Float32())
	}
}

func minBF16(dst, a, b []byte) {
	d, x, y := operands[BF16](dst, a, b)
	for i := range d {
		d[i] = ToBFloat16(min(x[i].Float32(), y[i].Float32()))
	}
}

func maxBF16(dst, a, b []byte) {
	d, x, y := operands[BF16](dst, a, b)
	for i := range d {
		d[i] = ToBFloat16(max(x[i].Float32(), y[i].Float32()))
	}
}

const badLength = "element: operands of different lengths"

// operands returns a kernel's arguments as elements.
func operands[T any](dst, a, b []byte) (d, x, y []T) {
	if len(a) != len(dst) || len(b) != len(dst) {
		panic(badLength)
	}
	d = View[T](dst)
	return d, View[T](a)[:len(d)], View[T](b)[:len(d)] // resliced so that the compiler omits bounds checks
}

// View returns the memory of b, which must be aligned for T, as elements.
func View[T any](b []byte) []T {
	var zero T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(zero)))
}

type integer interface {
	int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64
}

type float interface{ float32 | float64 }
