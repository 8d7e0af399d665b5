package blas

import (
	"gonum.org/v1/gonum/blas"

	"ddpbatch/trainer/blas/internal/tile"
)

// Blocks of a product, multiples of a tile's sides: with these numbers panels and sums take 360 KiB, which the caches next to a core hold.
const (
	blockRows  = 16 * tile.Rows
	blockCols  = 8 * tile.Cols
	blockDepth = 128
)

// Go is the products of this program itself, on the caller's core. The zero value is ready.
//
// An element of c is float32(alpha s + beta c): s adds up exact products in float64 from the first to the last, alpha s and the sum are rounded to
// float64. So it has the same bits on every machine, wherever operands lie in memory, and whatever
// else is computed beside it, apart from which NaN it is.
type Go struct{ workspaces spares[workspace] }

// workspace is the packed panels of one call, and its sums in tiles.
type workspace struct {
	a    [blockRows * blockDepth]float64
	b    [blockCols * blockDepth]float64
	sums [blockRows * blockCols / (tile.Rows * tile.Cols)]tile.Sums

	rounded [tile.Rows * tile.Cols]float32 // one tile
}

// Sgemm is the Library's.
func (g *Go) Sgemm(tA, tB blas.Transpose, m, n, k int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32, c []float32, ldc int) {
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

// tiles is how many pieces of a width cover length.
func tiles(length, width int) int { return (length + width - 1) / width }

// pack deals vectors of depth values to panels of width vectors each: the first values of all of a panel's, then the second, and so on. Vectors are
// rows of x, or with across columns. What the last panel lacks becomes 0, whose products nobody reads.
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

// add multiplies the panels, and adds to the sums.
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

// store makes rows x cols elements of c from the sums.
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

// scaleSums is s = alpha s + beta c.
func scaleSums(s []float64, c []float32, alpha, beta float32) {
	if beta == 0 { // c does not count, even if it is NaN
		for i := range s {
			s[i] *= float64(alpha)
		}
		return
	}
	for i, v := range c[:len(s)] {
		scaled := float64(float64(alpha) * s[i]) // rounded: never fused with what follows
		s[i] = scaled + float64(beta)*float64(v)
	}
}
