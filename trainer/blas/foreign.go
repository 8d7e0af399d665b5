//go:build !static && linux && (amd64 || arm64)

package blas

import (
	"sync"
	"unsafe"

	"gonum.org/v1/gonum/blas"
)

// foreign is a library behind the Fortran interface, where matrices lie column by column. Ours, row by row, are their transposes there, and
// c' = op(b)' op(a)' is the product to ask for.
//
// Some libraries take one caller at a time. Those built for one thread may lack locks: OpenBLAS then has them only where its builder
// asked for them, which cannot be seen from here. And where a product has several threads, OpenMP keeps as many for each thread of ours that
// calls, and they take the cores from each other: 2 to 4 GFLOP/s instead of 130 were measured with eight callers on two cores.
type foreign struct {
	sgemm  uintptr
	sbgemm uintptr // 0 where the library has none
	alone  bool    // one caller at a time (below)

	calling sync.Mutex // held during calls where alone
	args    spares[arguments]
}

// Sgemm is the Library's.
func (f *foreign) Sgemm(tA, tB blas.Transpose, m, n, k int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32, c []float32, ldc int) {
	check(tA, tB, m, n, k, len(a), lda, len(b), ldb, len(c), ldc)
	if m == 0 || n == 0 {
		return
	}
	if k == 0 {
		scale(c, ldc, m, n, beta)
		return
	}
	reads(tA, m, k, a, lda)
	reads(tB, k, n, b, ldb)
	writes(m, n, c, ldc)
	args := f.args.take()
	args.fn, args.a, args.b, args.c = f.sgemm, unsafe.Pointer(&b[0]), unsafe.Pointer(&a[0]), unsafe.Pointer(&c[0])
	args.shape(tA, tB, m, n, k, alpha, lda, ldb, beta, ldc)
	f.call(args)
}

// bfloat16 is Sgemm of bfloat16 matrices into one of float32, by sbgemm_, which must be there. No dimension is 0.
func (f *foreign) bfloat16(tA, tB blas.Transpose, m, n, k int, alpha float32, a []uint16, lda int, b []uint16, ldb int, beta float32, c []float32, ldc int) {
	check(tA, tB, m, n, k, len(a), lda, len(b), ldb, len(c), ldc)
	writes(m, n, c, ldc)
	args := f.args.take()
	args.fn, args.a, args.b, args.c = f.sbgemm, unsafe.Pointer(&b[0]), unsafe.Pointer(&a[0]), unsafe.Pointer(&c[0])
	args.shape(tA, tB, m, n, k, alpha, lda, ldb, beta, ldc)
	f.call(args)
}

func (f *foreign) hasBFloat16() bool { return f.sbgemm != 0 }

// call calls, and puts args back.
func (f *foreign) call(args *arguments) {
	if f.alone {
		f.calling.Lock()
		defer f.calling.Unlock()
	}
	cgocall(gemm, unsafe.Pointer(args))
	*args = arguments{}
	f.args.put(args)
}
