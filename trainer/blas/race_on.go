//go:build race

package blas

import (
	"runtime"
	"unsafe"

	"gonum.org/v1/gonum/blas"
)

// reads and writes report the accesses of C code to the race detector, which sees only code from Go's compiler.

func reads(t blas.Transpose, rows, cols int, x []float32, ld int) {
	rows, cols = stored(t, rows, cols)
	for i := range rows {
		runtime.RaceReadRange(unsafe.Pointer(&x[i*ld]), 4*cols)
	}
}

func writes(rows, cols int, x []float32, ld int) {
	for i := range rows {
		runtime.RaceWriteRange(unsafe.Pointer(&x[i*ld]), 4*cols)
	}
}
