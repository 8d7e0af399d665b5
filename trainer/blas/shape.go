package blas

import (
	"math"

	"gonum.org/v1/gonum/blas"
)

// check panics unless a product is one that can be computed. It is the same for every Library, and what a foreign one is given
// has passed it: C does not look at lengths.
func check(tA, tB blas.Transpose, m, n, k, lenA, lda, lenB, ldb, lenC, ldc int) {
	if !valid(tA) || !valid(tB) {
		panic("blas: unknown transpose")
	}
	if m < 0 || n < 0 || k < 0 {
		panic("blas: negative dimension")
	}
	if m > math.MaxInt32 || n > math.MaxInt32 || k > math.MaxInt32 ||
		lda > math.MaxInt32 || ldb > math.MaxInt32 || ldc > math.MaxInt32 {
		panic("blas: dimension above 2^31-1") // the Fortran interface counts in 32 bits
	}
	rowsA, colsA := stored(tA, m, k)
	rowsB, colsB := stored(tB, k, n)
	if !holds(lenA, rowsA, colsA, lda) {
		panic("blas: a does not hold its matrix")
	}
	if !holds(lenB, rowsB, colsB, ldb) {
		panic("blas: b does not hold its matrix")
	}
	if !holds(lenC, m, n, ldc) {
		panic("blas: c does not hold its matrix")
	}
}

func valid(t blas.Transpose) bool { return t == blas.NoTrans || t == blas.Trans || t == blas.ConjTrans }

// stored returns rows and columns, as they lie in memory, of a matrix x with op(x) rows x cols.
func stored(t blas.Transpose, rows, cols int) (int, int) {
	if t != blas.NoTrans {
		return cols, rows
	}
	return rows, cols
}

// holds tells whether rows x cols elements with rows ld apart fit into length ones. Dimensions below 2^31 make a product below 2^62.
func holds(length, rows, cols, ld int) bool {
	if ld < cols {
		return false
	}
	return rows == 0 || cols == 0 || int64(length) >= int64(rows-1)*int64(ld)+int64(cols)
}

// scale is c = beta c for a matrix of m rows and n columns: what is left of a product whose inner dimension is 0.
func scale(c []float32, ldc, m, n int, beta float32) {
	for i := range m {
		row := c[i*ldc:][:n]
		if beta == 0 {
			clear(row)
			continue
		}
		for j := range row {
			row[j] *= beta
		}
	}
}
