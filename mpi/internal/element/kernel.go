package element

import (
	"fmt"
	"strings"
)

// Kernel combines two arrays of elements of one type: dst[i] = a[i] op b[i].
// The three have the same length in bytes, a multiple of the element's size, and need no
// alignment beyond the element's own. dst is exactly a, or exactly b, or overlaps neither.
//
// Results have the same bits on every call and every CPU of one architecture, but for which NaN a NaN is. A kernel panics if the
// lengths differ. It allocates nothing.
type Kernel func(dst, a, b []byte)

// KernelOf finds the kernel of op for t. Avg and PreMulSum have that of Sum. It fails where
// t has no such operation, as bitwise ones have none for floats.
func KernelOf(t Type, op Op) (Kernel, error) {
	if int(op) < len(kernels[t]) && kernels[t][op] != nil {
		return kernels[t][op], nil
	}
	return nil, fmt.Errorf("combine elements: %v has no operation %v, only %v", t, op, operations(t))
}

// operations lists what t has kernels for.
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
// dst and dst2 do not overlap; each is exactly a, or exactly b, or overlaps neither a nor b. So two
// ranks' arrays can both be replaced by their sum, without a copy.
//
// It panics if the lengths differ, and allocates nothing.
type Kernel2 func(dst, dst2, a, b []byte)

// Kernel2Of finds the Kernel2 of op for t, if there is one: for sums of floats of 32 and 64 bits and of complex numbers, on
// CPUs that it is written in assembly for. Elsewhere there are the kernel and a copy.
func Kernel2Of(t Type, op Op) (Kernel2, bool) {
	if op != Sum && op != Avg && op != PreMulSum {
		return nil, false
	}
	return pairs[t], pairs[t] != nil
}

// kernels is plain, with assembly where this CPU has it.
var kernels = available.applyTo(plain)

var pairs = available.pairs()

// ops are the kernels of one type. There is none at Op 0.
type ops [Avg + 1]Kernel

// kernelTable is the kernels of every type.
type kernelTable [len(types)]ops

// plain is every kernel as a loop in Go: what runs where there is no assembly
// for it, and what assembly is tested against.
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

// averaged adds the operations that are sums with something before or after.
func averaged(kernels ops) ops {
	kernels[Avg], kernels[PreMulSum] = kernels[Sum], kernels[Sum]
	return kernels
}
