package blas

import "gonum.org/v1/gonum/blas"

// rounded is a Library that converts a and b, then multiplies. E is what it converts to: float32 with rounded values, or the 16
// bits of a bfloat16.
type rounded[E float32 | uint16] struct {
	lib      Library // for products with nothing to convert
	convert  func(dst []E, x []float32)
	multiply func(tA, tB blas.Transpose, m, n, k int, alpha float32, a []E, lda int, b []E, ldb int, beta float32, c []float32, ldc int)

	copies spares[copies[E]]
}

// copies are the converted a and b of one call.
type copies[E float32 | uint16] struct {
	a, b []E
}

func newRounded[E float32 | uint16](lib Library, convert func([]E, []float32),
	multiply func(blas.Transpose, blas.Transpose, int, int, int, float32, []E, int, []E, int, float32, []float32, int)) *rounded[E] {
	return &rounded[E]{lib: lib, convert: convert, multiply: multiply}
}

// Sgemm is the Library's.
func (r *rounded[E]) Sgemm(tA, tB blas.Transpose, m, n, k int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32, c []float32, ldc int) {
	if m <= 0 || n <= 0 || k <= 0 {
		r.lib.Sgemm(tA, tB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
		return
	}
	check(tA, tB, m, n, k, len(a), lda, len(b), ldb, len(c), ldc)
	s := r.copies.take()
	rowsA, colsA := stored(tA, m, k)
	rowsB, colsB := stored(tB, k, n)
	s.a = r.pack(s.a, a, rowsA, colsA, lda)
	s.b = r.pack(s.b, b, rowsB, colsB, ldb)
	r.multiply(tA, tB, m, n, k, alpha, s.a, colsA, s.b, colsB, beta, c, ldc)
	r.copies.put(s)
}

// pack converts a matrix into dst, grown where it is too small, row after row without gaps.
func (r *rounded[E]) pack(dst []E, x []float32, rows, cols, ld int) []E {
	if cap(dst) < rows*cols {
		dst = make([]E, rows*cols)
	}
	dst = dst[:rows*cols]
	if ld == cols {
		r.convert(dst, x[:rows*cols])
		return dst
	}
	for i := range rows {
		r.convert(dst[i*cols:][:cols], x[i*ld:][:cols])
	}
	return dst
}
