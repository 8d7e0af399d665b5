package nn

import "ddpbatch/trainer/internal/vec"

// Tanh is the hyperbolic tangent, element by element.
type Tanh struct{ y, dx Matrix }

// NewTanh returns a hyperbolic tangent for batches of any width.
func NewTanh() *Tanh { return new(Tanh) }

// Params returns none.
func (*Tanh) Params() []*Param { return nil }

// Buffers returns none.
func (*Tanh) Buffers() []*Buffer { return nil }

// Forward returns tanh(x).
func (t *Tanh) Forward(_ *Pass, x Matrix) Matrix {
	t.y.resize(x.Rows, x.Cols)
	vec.Tanh(t.y.Data, x.Data)
	return t.y
}

// Backward returns dy (1 - y²).
func (t *Tanh) Backward(_ *Pass, dy Matrix, input bool) Matrix {
	sameShape(dy, t.y)
	if !input {
		return Matrix{}
	}
	t.dx.resize(dy.Rows, dy.Cols)
	vec.TanhGrad(t.dx.Data, t.y.Data, dy.Data)
	return t.dx
}
