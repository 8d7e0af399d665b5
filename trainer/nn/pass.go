package nn

import (
	"gonum.org/v1/gonum/blas"

	tblas "ddpbatch/trainer/blas"
)

// Pass is what modules compute a forward and a backward pass with. The zero value evaluates, with products in Go. A Pass is used
// by one goroutine at a time, and the Backward that belongs to a Forward gets the same one.
type Pass struct {
	// Training tells that parameters are being trained: dropout drops, and batch normalization takes the
	// statistics of the batch and updates the running ones.
	Training bool
	// BLAS computes the matrix products; the first of them makes it a blas.Go where it is nil.
	BLAS tblas.Library
	// Seed is what random layers draw from in this pass. The same Seed gives the same numbers: whoever trains sets another one for
	// each step and rank.
	Seed uint64
	// Ready, where set, is called by Backward, on its goroutine, as soon as a parameter's gradient has all that this pass
	// adds to it. It must not change the gradient before Backward has returned, unless nobody else adds to it.
	Ready func(*Param)
}

// Done is what a module's Backward calls once it has added all it has to the gradient of w.
func (p *Pass) Done(w *Param) {
	w.HasGrad = true
	if p.Ready != nil {
		p.Ready(w)
	}
}

// Product is c = op(a) op(b), or c += op(a) op(b) where add is true; op transposes what is marked blas.Trans. Shapes must fit, and c
// must not share memory with a or b.
func (p *Pass) Product(c, a Matrix, ta blas.Transpose, b Matrix, tb blas.Transpose, add bool) {
	m, depth := shape(a, ta)
	depthB, n := shape(b, tb)
	if c.Rows != m || c.Cols != n || depth != depthB {
		panic("nn: shapes of a matrix product do not fit")
	}
	if m == 0 || n == 0 {
		return
	}
	var beta float32
	if add {
		beta = 1
	}
	p.library().Sgemm(ta, tb, m, n, depth, 1, a.Data, a.Cols, b.Data, b.Cols, beta, c.Data, c.Cols)
}

func (p *Pass) library() tblas.Library {
	if p.BLAS == nil {
		p.BLAS = new(tblas.Go)
	}
	return p.BLAS
}

// shape returns the rows and columns of op(m).
func shape(m Matrix, t blas.Transpose) (rows, cols int) {
	if t == blas.Trans {
		return m.Cols, m.Rows
	}
	return m.Rows, m.Cols
}
