package nn

import "ddpbatch/trainer/internal/vec"

// ReLU is y = max(x, 0), element by element. NaN stays NaN, so that a model that has gone
// wrong shows it in its loss.
type ReLU struct{ y, dx Matrix }

// NewReLU returns a rectifier for batches of any width.
func NewReLU() *ReLU { return new(ReLU) }

// Params returns none.
func (*ReLU) Params() []*Param { return nil }

// Buffers returns none.
func (*ReLU) Buffers() []*Buffer { return nil }

// Forward returns max(x, 0).
func (r *ReLU) Forward(_ *Pass, x Matrix) Matrix {
	r.y.resize(x.Rows, x.Cols)
	vec.ReLU(r.y.Data, x.Data)
	return r.y
}

// Backward passes on dy where y is positive. At 0 the gradient is 0, as in PyTorch.
func (r *ReLU) Backward(_ *Pass, dy Matrix, input bool) Matrix {
	sameShape(dy, r.y)
	if !input {
		return Matrix{}
	}
	r.dx.resize(dy.Rows, dy.Cols)
	vec.ReLUGrad(r.dx.Data, r.y.Data, dy.Data)
	return r.dx
}
