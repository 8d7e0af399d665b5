package nn

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

// addProduct is c += op(a) op(b), where op transposes what is marked blas.Trans.
// It allocates nothing, and for equal shapes sums in the same order whatever the number of cores.
func addProduct(c, a Matrix, ta blas.Transpose, b Matrix, tb blas.Transpose) {
	m, depth := shape(a, ta)
	depthB, n := shape(b, tb)
	if c.Rows != m || c.Cols != n || depth != depthB {
		panic("nn: shapes of a matrix product do not fit")
	}
	var lib gonum.Implementation
	for i := 0; i < m; i += tileRows {
		for j := 0; j < n; j += tileCols {
			for k := 0; k < depth; k += tileDepth {
				lib.Sgemm(ta, tb, min(tileRows, m-i), min(tileCols, n-j), min(tileDepth, depth-k),
					1, from(a, ta, i, k), a.Cols, from(b, tb, k, j), b.Cols,
					1, from(c, blas.NoTrans, i, j), c.Cols)
			}
		}
	}
}

// shape returns the rows and columns of op(m).
func shape(m Matrix, t blas.Transpose) (rows, cols int) {
	if t == blas.Trans {
		return m.Cols, m.Rows
	}
	return m.Rows, m.Cols
}

// from returns m's data from element (i, j) of op(m) on.
func from(m Matrix, t blas.Transpose, i, j int) []float32 {
	if t == blas.Trans {
		i, j = j, i
	}
	return m.Data[i*m.Cols+j:]
}
