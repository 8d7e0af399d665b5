package blas

import (
	"errors"
	"math"

	"gonum.org/v1/gonum/blas"
)

// errWrong is of a library whose products are none, because it expects other arguments or was built for another machine.
var errWrong = errors.New("its sgemm_ does not compute a matrix product: it has another interface than BLAS's, or is broken on this machine")

// verify compares products with the definition. Their elements are small integers, so that the results are exact in whatever order
// they are summed, in bfloat16 too.
func verify(lib Library) error {
	const m, n, k, gap = 19, 37, 23, 3
	for _, tA := range []blas.Transpose{blas.NoTrans, blas.Trans} {
		for _, tB := range []blas.Transpose{blas.NoTrans, blas.Trans} {
			for _, beta := range []float32{0, 2} {
				if !correct(lib, tA, tB, m, n, k, gap, beta) {
					return errWrong
				}
			}
		}
	}
	return nil
}

// correct computes one product, of matrices whose rows lie gap elements apart, and checks every element of c and of the gaps.
func correct(lib Library, tA, tB blas.Transpose, m, n, k, gap int, beta float32) bool {
	rowsA, colsA := stored(tA, m, k)
	rowsB, colsB := stored(tB, k, n)
	lda, ldb, ldc := colsA+gap, colsB+gap, n+gap
	a, b, c := integers(rowsA*lda, 3), integers(rowsB*ldb, 5), integers(m*ldc, 7)
	if beta == 0 { // then it does not count
		for i := range c {
			if i%ldc < n {
				c[i] = float32(math.NaN())
			}
		}
	}
	const alpha = 2
	want := append([]float32(nil), c...)
	for i := range m {
		for j := range n {
			var sum float32
			for l := range k {
				sum += from(a, lda, tA, i, l)[0] * from(b, ldb, tB, l, j)[0]
			}
			if beta != 0 {
				want[i*ldc+j] *= beta
			} else {
				want[i*ldc+j] = 0
			}
			want[i*ldc+j] += alpha * sum
		}
	}
	lib.Sgemm(tA, tB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
	for i := range c {
		if c[i] != want[i] {
			return false
		}
	}
	return true
}

// integers returns values from -8 to 8 without a short period.
func integers(length int, seed uint32) []float32 {
	x := make([]float32, length)
	for i := range x {
		seed = seed*1664525 + 1013904223 // Numerical Recipes' generator
		x[i] = float32(seed>>16%17) - 8
	}
	return x
}
