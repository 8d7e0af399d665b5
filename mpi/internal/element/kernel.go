package element

import (
	"fmt"
	"strings"
)

// Kernel combines two arrays of elements of one type: dst[i] = a[i] op b[i].
// The three have the same length in bytes, a multiple of the element's size, and the alignment of the element. dst is exactly a, or
// exactly b, or overlaps neither.
//
// Results have the same bits on every call and every CPU of one architecture, except for which NaN a NaN is. A kernel panics if the
// lengths differ. It does not allocate.
type Kernel func(dst, a, b []byte)

// KernelOf returns the kernel of op for t. Avg and PreMulSum have the kernel of Sum. It fails if t does not have the operation,
// such as a bitwise one for floats.
func KernelOf(t Type, op Op) (Kernel, error) {
	if int(op) < len(kernels[t]) && kernels[t][op] != nil {
		return kernels[t][op], nil
	}
	return nil, fmt.Errorf("combine elements: %v has no operation %v, only %v", t, op, operations(t))
}

// operations lists the operations for which t has kernels.
func operations(t Type) string {
	var names []string
	for op, kernel := range kernels[t] {
		if kernel != nil {
			names = append(names, Op(op).String())
		}
	}
	return strings.Join(names, ", ")
}

// Kernel2 is a Kernel that stores the result twice in one pass: dst[i] = dst2[i] = a[i] op b[i].
// dst and dst2 do not overlap; each is exactly a, or exactly b, or overlaps neither a nor b. So the arrays of two ranks can both be
// replaced by their sum, without a copy.
//
// It panics if the lengths differ, and does not allocate.
type Kernel2 func(dst, dst2, a, b []byte)

// Kernel2Of returns the Kernel2 of op for t, if it exists: for sums of 32-bit and 64-bit floats and of complex numbers, on CPUs
// with the assembly. Otherwise callers use the kernel and a copy.
func Kernel2Of(t Type, op Op) (Kernel2, bool) {
	if op != Sum && op != Avg && op != PreMulSum {
		return nil, false
	}
	return pairs[t], pairs[t] != nil
}

// kernels is plain, with assembly if this CPU supports it.
var kernels = available.applyTo(plain)

var pairs = available.pairs()

// ops are the kernels of one type, by Op. Op 0 has none.
type ops [Avg + 1]Kernel

// kernelTable is the kernels of every type.
type kernelTable [len(types)]ops

// plain has every kernel as a loop in Go. These run if there is no assembly, and assembly is tested against them.
var plain = kernelTable{
	Float32:    ordered[float32](),
	Float64:    ordered[float64](),
	Int8:       integers[int8](),
	Int16:      integers[int16](),
	Int32:      integers[int32](),
	Int64:      integers[int64](),
	Uint8:      integers[uint8](),
	Uint16:     integers[uint16](),
	Uint32:     integers[uint32](),
	Uint64:     integers[uint64](),
	Float16:    averaged(ops{Sum: sumF16, Min: minF16, Max: maxF16, Product: productF16}),
	BFloat16:   averaged(ops{Sum: sumBF16, Min: minBF16, Max: maxBF16, Product: productBF16}),
	Complex64:  averaged(ops{Sum: sum[complex64], Product: product[complex64]}),
	Complex128: averaged(ops{Sum: sum[complex128], Product: product[complex128]}),
	Bool:       {Sum: or, Max: or, BOr: or, Product: and, Min: and, BAnd: and, BXor: xor},
}

func ordered[T integer | float]() ops {
	return averaged(ops{Sum: sum[T], Min: least[T], Max: greatest[T], Product: product[T]})
}

func integers[T integer]() ops {
	kernels := ordered[T]()
	kernels[BAnd], kernels[BOr], kernels[BXor] = bitAnd, bitOr, bitXor
	return kernels
}

// averaged adds the operations that are sums with a step before or after.
func averaged(kernels ops) ops {
	kernels[Avg], kernels[PreMulSum] = kernels[Sum], kernels[Sum]
	return kernels
}
