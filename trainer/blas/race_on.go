//go:build race

package blas

import (
	"runtime"
	"unsafe"

	"gonum.org/v1/gonum/blas"
)

// reads and writes tell the race detector what C does: it sees only what Go's compiler made.

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
