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
	if !t.Valid() {
		return nil, fmt.Errorf("combine elements: there is no %v", t)
	}
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

// ops are the kernels of one type. There is none at Op 0.
type ops [Avg + 1]Kernel

// table is the kernels of every type.
type table [len(types)]ops

// kernels is plain, with assembly where this CPU has it.
var kernels = best.over(plain)
