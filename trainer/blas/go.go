package blas

import (
	"math"
	"sync"

	"gonum.org/v1/gonum/blas"

	"ddpbatch/trainer/blas/internal/tile"
)

// Library computes matrix products: the part of gonum's blas.Float32Level3 that training needs. It is safe for concurrent use.
type Library interface {
	// Sgemm computes c = alpha op(a) op(b) + beta c, row-major: op(a) is m x k, op(b) k x n, c m x n, and lda, ldb, ldc are
	// the distances between rows in elements. If beta is 0, the contents of c are ignored. c must not share memory with a or b.
	// 0 times NaN or an infinity is NaN.
	// It panics if a slice is too short, as gonum does, or if a dimension is above 2^31-1. It does not allocate
	// unless there are more concurrent callers than ever before.
	Sgemm(tA, tB blas.Transpose, m, n, k int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32, c []float32, ldc int)
}

// Blocks of a product, multiples of a tile's sides: with these sizes panels and sums take 360 KiB, which fits in the caches of a core.
const (
	blockRows  = 16 * tile.Rows
	blockCols  = 8 * tile.Cols
	blockDepth = 128
)

// Go computes the products in this program itself, on the caller's core. The zero value is ready to use.
//
// An element of c is float32(alpha s + beta c): s adds up exact products in float64 from the first to the last, and alpha s and the sum are
// rounded to float64. So it has the same bits on every machine, wherever operands are in memory, and whatever
// else is computed at the same time, except for which NaN it is.
type Go struct{ workspaces pool[workspace] }

// workspace holds the packed panels of one call, and its sums in tiles.
type workspace struct {
	a    [blockRows * blockDepth]float64
	b    [blockCols * blockDepth]float64
	sums [blockRows * blockCols / (tile.Rows * tile.Cols)]tile.Sums

	rounded [tile.Rows * tile.Cols]float32 // one tile
}

// Sgemm implements Library.
func (g *Go) Sgemm(tA, tB blas.Transpose, m, n, k int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32,
	c []float32, ldc int) {
	check(tA, tB, m, n, k, len(a), lda, len(b), ldb, len(c), ldc)
	if k == 0 {
		scale(c, ldc, m, n, beta)
		return
	}
	w := g.workspaces.take()
	defer g.workspaces.put(w)
	for i := 0; i < m; i += blockRows {
		for j := 0; j < n; j += blockCols {
			rows, cols := min(blockRows, m-i), min(blockCols, n-j)
			clear(w.sums[:tiles(rows, tile.Rows)*tiles(cols, tile.Cols)])
			for l := 0; l < k; l += blockDepth {
				depth := min(blockDepth, k-l)
				pack(w.a[:], tile.Rows, from(a, lda, tA, i, l), lda, tA != blas.NoTrans, rows, depth)
				pack(w.b[:], tile.Cols, from(b, ldb, tB, l, j), ldb, tB == blas.NoTrans, cols, depth)
				w.add(rows, cols, depth)
			}
			w.store(c[i*ldc+j:], ldc, rows, cols, alpha, beta)
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

// tiles returns how many pieces of a width cover length.
func tiles(length, width int) int { return (length + width - 1) / width }

// pack rearranges vectors of depth values into panels of width vectors each: the first values of all vectors of a panel, then the second
// values, and so on. Vectors are rows of x, or columns if across. Missing vectors of the last panel become 0; their products are not used.
func pack(dst []float64, width int, x []float32, ld int, across bool, vectors, depth int) {
	for first := 0; first < vectors; first += width {
		panel := dst[:width*depth]
		dst = dst[len(panel):]
		count := min(width, vectors-first)
		if count < width {
			clear(panel)
		}
		if across {
			for l := range depth {
				to := panel[l*width:][:count]
				for i, v := range x[l*ld+first:][:count] {
					to[i] = float64(v)
				}
			}
			continue
		}
		for i := range count {
			at := i
			for _, v := range x[(first+i)*ld:][:depth] {
				panel[at] = float64(v)
				at += width
			}
		}
	}
}

// add multiplies the panels and adds the products to the sums.
func (w *workspace) add(rows, cols, depth int) {
	sums := w.sums[:]
	for i := range tiles(rows, tile.Rows) {
		a := w.a[i*tile.Rows*depth:][:tile.Rows*depth]
		for j := range tiles(cols, tile.Cols) {
			tile.Add(&sums[0], a, w.b[j*tile.Cols*depth:][:tile.Cols*depth])
			sums = sums[1:]
		}
	}
}

// store computes rows x cols elements of c from the sums.
func (w *workspace) store(c []float32, ldc, rows, cols int, alpha, beta float32) {
	sums := w.sums[:]
	for i := 0; i < rows; i += tile.Rows {
		for j := 0; j < cols; j += tile.Cols {
			height, width, at := min(tile.Rows, rows-i), min(tile.Cols, cols-j), i*ldc+j
			if alpha != 1 || beta != 0 {
				for row := range height {
					scaleSums(sums[0][row*tile.Cols:][:width], c[at+row*ldc:], alpha, beta)
				}
			}
			tile.Round(&w.rounded, &sums[0])
			for row := range height {
				copy(c[at+row*ldc:][:width], w.rounded[row*tile.Cols:])
			}
			sums = sums[1:]
		}
	}
}

// scaleSums computes s = alpha s + beta c.
func scaleSums(s []float64, c []float32, alpha, beta float32) {
	if beta == 0 { // ignore c, even if it is NaN
		for i := range s {
			s[i] *= float64(alpha)
		}
		return
	}
	for i, v := range c[:len(s)] {
		scaled := float64(float64(alpha) * s[i]) // the conversion rounds, so that it is not fused with the next operation
		s[i] = scaled + float64(beta)*float64(v)
	}
}

// check panics unless a product can be computed. It is the same for every Library. The arguments of a foreign library
// must pass it because C does not check lengths.
func check(tA, tB blas.Transpose, m, n, k, lenA, lda, lenB, ldb, lenC, ldc int) {
	if !valid(tA) || !valid(tB) {
		panic("blas: unknown transpose")
	}
	if m < 0 || n < 0 || k < 0 {
		panic("blas: negative dimension")
	}
	if m > math.MaxInt32 || n > math.MaxInt32 || k > math.MaxInt32 ||
		lda > math.MaxInt32 || ldb > math.MaxInt32 || ldc > math.MaxInt32 {
		panic("blas: dimension above 2^31-1") // the Fortran interface may count in 32 bits
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

// stored returns the rows and columns in memory of a matrix x with op(x) rows x cols.
func stored(t blas.Transpose, rows, cols int) (int, int) {
	if t != blas.NoTrans {
		return cols, rows
	}
	return rows, cols
}

// holds reports whether rows x cols elements with rows ld apart fit into length elements. Dimensions are below 2^31, so products are below
// 2^62.
func holds(length, rows, cols, ld int) bool {
	if ld < cols {
		return false
	}
	return rows == 0 || cols == 0 || int64(length) >= int64(rows-1)*int64(ld)+int64(cols)
}

// scale computes c = beta c for a matrix of m rows and n columns: the result of a product whose inner dimension is 0.
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

// pool keeps values for calls to reuse: as many as there were concurrent callers. The zero value has none yet. Unlike sync.Pool it
// loses nothing to the garbage collector, so that a Library does not allocate in steady state.
type pool[T any] struct {
	mu   sync.Mutex
	free []*T
}

// take returns a value that nothing else uses until it is put back.
func (s *pool[T]) take() *T {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.free) == 0 {
		return new(T)
	}
	last := s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	return last
}

func (s *pool[T]) put(v *T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, v)
}
