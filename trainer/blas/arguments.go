//go:build !static && linux && (amd64 || arm64)

package blas

import (
	"unsafe"

	"gonum.org/v1/gonum/blas"
)

// arguments are those of a Fortran product, which takes all by reference. They are on the heap, which Go does not move, and so is what a, b and
// c point to: storing them here makes it so, and keeps it alive during the call.
//
// Integers have 64 bits, and are small and positive: a library that wants pointers to integers of 32 bits (LP64) reads
// the low halves, which come first on the machines this is built for, and one with 64 bits (ILP64) the whole.
type arguments struct {
	fn                     uintptr // of the product
	a, b, c                unsafe.Pointer
	m, n, k, lda, ldb, ldc int64
	alpha, beta            float32
	tA, tB                 byte
}

// shape fills in all but addresses, for the transposed product.
func (args *arguments) shape(tA, tB blas.Transpose, m, n, k int, alpha float32, lda, ldb int, beta float32, ldc int) {
	args.tA, args.tB = letter(tB), letter(tA)
	args.m, args.n, args.k = int64(n), int64(m), int64(k)
	args.lda, args.ldb, args.ldc = int64(ldb), int64(lda), int64(ldc)
	args.alpha, args.beta = alpha, beta
}

func letter(t blas.Transpose) byte {
	if t == blas.NoTrans {
		return 'N'
	}
	return 'T'
}

// gemm is the address of the assembly that calls args.fn with args. Instead of purego.SyscallN, as that allocates twice in each call.
var gemm uintptr

// cgocall is the runtime's way into C: on a stack that is large enough, with the goroutine counted as
// being in a system call. runtime/cgocall.go promises purego to keep it.
//
//go:linkname cgocall runtime.cgocall
func cgocall(fn uintptr, args unsafe.Pointer) int32
