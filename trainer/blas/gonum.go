package blas

import (
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/gonum"
)

// Tiles of a product. gonum starts goroutines, and allocates for them, once the result has
// four blocks of 64 x 64, so a tile has three; more of the inner dimension at a time than
// tileDepth no longer fits the cache.
const (
	tileRows  = 64
	tileCols  = 3 * 64
	tileDepth = 1024
)

// Gonum is gonum's products in plain Go, on the caller's core. They allocate nothing, and sum in the same order whatever the
// number of cores.
//
// Terms in which the element of a is 0 are left out, unless a is as it is and b transposed: there 0 times NaN or an infinity adds
// nothing, where IEEE 754 and other libraries have NaN. What has gone wrong may so be hidden from a gradient, until it is
// multiplied with something else than 0. A NaN in a always comes out.
type Gonum struct{}

// Sgemm is the Library's.
func (Gonum) Sgemm(tA, tB blas.Transpose, m, n, k int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32, c []float32, ldc int) {
	check(tA, tB, m, n, k, len(a), lda, len(b), ldb, len(c), ldc)
	if k == 0 {
		scale(c, ldc, m, n, beta)
		return
	}
	var lib gonum.Implementation
	for i := 0; i < m; i += tileRows {
		for j := 0; j < n; j += tileCols {
			for l := 0; l < k; l += tileDepth {
				more := beta
				if l > 0 {
					more = 1
				}
				lib.Sgemm(tA, tB, min(tileRows, m-i), min(tileCols, n-j), min(tileDepth, k-l),
					alpha, from(a, lda, tA, i, l), lda, from(b, ldb, tB, l, j), ldb,
					more, c[i*ldc+j:], ldc)
			}
		}
	}
}

// from returns data from element (i, j) of op(a) on.
func from(data []float32, ld int, t blas.Transpose, i, j int) []float32 {
	if t != blas.NoTrans {
		i, j = j, i
	}
	return data[i*ld+j:]
}
