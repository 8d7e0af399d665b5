package nn

import (
	"iter"

	"gonum.org/v1/gonum/blas"

	tblas "ddpbatch/trainer/blas"
)

// Module is a differentiable function of a batch, with or without parameters.
//
// There is at most one Backward for each Forward, before the next Forward. It may overwrite what the
// Forward has kept for it. For evaluation only Forward is called. The package's documentation says who owns the matrices.
type Module interface {
	// Forward returns y = f(x). Most modules return one row for each row of x; those of a transformer
	// return one for each symbol.
	Forward(p *Pass, x Matrix) Matrix

	// Backward takes dL/dy of the last Forward, adds dL/dw to the Grad of every parameter
	// w, calls p.Done(w) for it, and returns dL/dx. If input is false, dL/dx is not needed: it is
	// not computed, and the result is the empty matrix.
	Backward(p *Pass, dy Matrix, input bool) Matrix

	// Params returns the parameters in the order of PyTorch's named_parameters. It lists a parameter that several modules share at
	// each of its uses, because each use calls Done for it. The module owns the slice.
	Params() []*Param

	// Buffers returns the rest of the state, in the order of PyTorch's named_buffers, with a shared buffer at each of its
	// uses. The module owns the slice.
	Buffers() []*Buffer
}

// stateless is embedded by modules without parameters and buffers.
type stateless struct{}

// Params returns nil.
func (stateless) Params() []*Param { return nil }

// Buffers returns nil.
func (stateless) Buffers() []*Buffer { return nil }

// parameters is embedded by modules with parameters but no buffers.
type parameters []*Param

// Params returns the parameters.
func (p parameters) Params() []*Param { return p }

// Buffers returns nil.
func (parameters) Buffers() []*Buffer { return nil }

// Param is a named parameter with its gradient.
type Param struct {
	Name  string // "0.weight": the path of the layer, then PyTorch's name in it
	Shape []int  // of Value and Grad, row-major
	Value []float32
	Grad  []float32
	// HasGrad reports whether a Backward has added to Grad since ZeroGrad. A parameter for which it is false is unused, like one whose
	// .grad is None in PyTorch, and optimizers do not change it.
	HasGrad bool

	seen bool // used by Distinct
}

func newParam(name string, shape ...int) *Param {
	size := sizeOf(shape)
	return &Param{Name: name, Shape: shape, Value: make([]float32, size), Grad: make([]float32, size)}
}

// Buffer is a named part of a module's state that is not trained, such as a running mean.
type Buffer struct {
	Name  string
	Shape []int
	Value []float32
}

func newBuffer(name string, shape ...int) *Buffer {
	return &Buffer{Name: name, Shape: shape, Value: make([]float32, sizeOf(shape))}
}

func sizeOf(shape []int) int {
	size := 1
	for _, n := range shape {
		size *= n
	}
	return size
}

// Distinct yields each of params once, in their order, however often it is listed. It marks the parameters
// themselves, which needs neither memory nor a search: only one goroutine at a time may use it, and its loop must not call it again.
func Distinct(params []*Param) iter.Seq[*Param] {
	return func(yield func(*Param) bool) {
		for _, p := range params {
			p.seen = false
		}
		for _, p := range params {
			if p.seen {
				continue
			}
			p.seen = true
			if !yield(p) {
				return
			}
		}
	}
}

// ZeroGrad sets all gradients to zero and HasGrad to false: PyTorch's zero_grad(set_to_none=True), its default since 2.0.
// With the zeros that set_to_none=False leaves, PyTorch's optimizers still decay unused parameters and use up their momentum.
func ZeroGrad(params []*Param) {
	for _, p := range params {
		clear(p.Grad)
		p.HasGrad = false
	}
}

// Pass configures a forward and a backward pass of modules. The zero value is for evaluation, with products in Go. Only one goroutine at a
// time may use a Pass, and a Backward must get the same Pass as its Forward.
type Pass struct {
	// Training says that the pass is for training: dropout drops, and batch normalization uses the
	// statistics of the batch and updates the running ones.
	Training bool
	// BLAS computes the matrix products. If it is nil, the first product sets it to a blas.Go.
	BLAS tblas.Library
	// Seed is the seed of random layers in this pass. The same Seed gives the same numbers: a trainer sets a different one for
	// each step and rank.
	Seed uint64
	// Ready, unless nil, is called by Backward, on its goroutine, as soon as a parameter's gradient is complete for this pass.
	// It must not change the gradient before Backward has returned, unless nothing else adds to it.
	Ready func(*Param)
}

// Done must be called by a module's Backward once it has added everything to the gradient of w.
func (p *Pass) Done(w *Param) {
	w.HasGrad = true
	if p.Ready != nil {
		p.Ready(w)
	}
}

// Product computes c = op(a) op(b), or c += op(a) op(b) if add is true; op transposes a matrix marked blas.Trans. Shapes must match, and c
// must not share memory with a or b.
func (p *Pass) Product(c, a Matrix, ta blas.Transpose, b Matrix, tb blas.Transpose, add bool) {
	m, depth := shape(a, ta)
	depthB, n := shape(b, tb)
	if c.Rows != m || c.Cols != n || depth != depthB {
		panic("nn: shapes of a matrix product do not match")
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

// Matrix is a row-major matrix without padding: element (i, j) is Data[i*Cols+j]
// and len(Data) is Rows*Cols. Copies share Data.
type Matrix struct {
	Rows, Cols int
	Data       []float32
}

// NewMatrix returns a matrix of zeros.
func NewMatrix(rows, cols int) Matrix {
	return Matrix{Rows: rows, Cols: cols, Data: make([]float32, rows*cols)}
}

// Row returns row i as a view.
func (m Matrix) Row(i int) []float32 {
	return m.Data[i*m.Cols : (i+1)*m.Cols : (i+1)*m.Cols]
}

// resize makes m rows x cols and keeps its memory if that is large enough. The elements are then
// undefined.
func (m *Matrix) resize(rows, cols int) {
	if size := rows * cols; cap(m.Data) < size {
		m.Data = make([]float32, size)
	} else {
		m.Data = m.Data[:size]
	}
	m.Rows, m.Cols = rows, cols
}

// sameShape panics unless a and b have equal shapes.
func sameShape(a, b Matrix) {
	if a.Rows != b.Rows || a.Cols != b.Cols {
		panic("nn: shapes of matrices differ")
	}
}

// view is a part of a larger row-major matrix: element (i, j) is data[i*stride+j].
type view struct {
	data   []float32
	stride int
}

// from returns the part from element (i, j) on.
func (v view) from(i, j int) view { return view{v.data[i*v.stride+j:], v.stride} }

// row returns the first n elements of row i.
func (v view) row(i, n int) []float32 { return v.data[i*v.stride:][:n] }

// multiply computes c = alpha op(a) op(b) + beta c, where op(a) is m x depth and op(b) is depth x n.
func (p *Pass) multiply(c, a view, ta blas.Transpose, b view, tb blas.Transpose, m, n, depth int, alpha, beta float32) {
	p.library().Sgemm(ta, tb, m, n, depth, alpha, a.data, a.stride, b.data, b.stride, beta, c.data, c.stride)
}
