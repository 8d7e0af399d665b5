package blas

import "gonum.org/v1/gonum/blas"

// Library computes matrix products: the part of gonum's blas.Float32Level3 that training needs. It is safe for concurrent use.
type Library interface {
	// Sgemm is c = alpha op(a) op(b) + beta c, row-major: op(a) is m x k, op(b) k x n, c m x n, and lda, ldb, ldc are
	// the elements from one row to the next. Where beta is 0, what c holds does not count. c must not share memory with a or b.
	// 0 times NaN or an infinity is NaN.
	// It panics where a slice is too short, as gonum does, and where a dimension is above 2^31-1. It allocates nothing
	// once as many callers as now have been in it at a time.
	Sgemm(tA, tB blas.Transpose, m, n, k int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32, c []float32, ldc int)
}
