package nn

import "gonum.org/v1/gonum/blas"

// view is a part of a larger row-major matrix: element (i, j) is data[i*stride+j].
type view struct {
	data   []float32
	stride int
}

// from returns the part from element (i, j) on.
func (v view) from(i, j int) view { return view{v.data[i*v.stride+j:], v.stride} }

// row returns the first n elements of row i.
func (v view) row(i, n int) []float32 { return v.data[i*v.stride:][:n] }

// multiply is c = alpha op(a) op(b) + beta c, where op(a) is m x depth and op(b) is depth x n.
func (p *Pass) multiply(c, a view, ta blas.Transpose, b view, tb blas.Transpose, m, n, depth int, alpha, beta float32) {
	p.library().Sgemm(ta, tb, m, n, depth, alpha, a.data, a.stride, b.data, b.stride, beta, c.data, c.stride)
}
