package nn

import "math"

// ReLU is y = max(x, 0), element by element. NaN stays NaN, so that a model that has gone
// wrong shows it in its loss.
type ReLU struct{ y, dx Matrix }

// NewReLU returns a rectifier for batches of any width.
func NewReLU() *ReLU { return new(ReLU) }

// Params returns none.
func (*ReLU) Params() []*Param { return nil }

// Forward returns max(x, 0).
func (r *ReLU) Forward(x Matrix) Matrix {
	r.y.resize(x.Rows, x.Cols)
	for i, v := range x.Data {
		r.y.Data[i] = max(v, 0)
	}
	return r.y
}

// Backward passes on dy where y is positive. At 0 the gradient is 0, as in PyTorch.
func (r *ReLU) Backward(dy Matrix, input bool) Matrix {
	sameShape(dy, r.y)
	if !input {
		return Matrix{}
	}
	r.dx.resize(dy.Rows, dy.Cols)
	for i, y := range r.y.Data {
		if y > 0 {
			r.dx.Data[i] = dy.Data[i]
		} else {
			r.dx.Data[i] = 0
		}
	}
	return r.dx
}

// Tanh is the hyperbolic tangent, element by element, computed in float64.
type Tanh struct{ y, dx Matrix }

// NewTanh returns a hyperbolic tangent for batches of any width.
func NewTanh() *Tanh { return new(Tanh) }

// Params returns none.
func (*Tanh) Params() []*Param { return nil }

// Forward returns tanh(x).
func (t *Tanh) Forward(x Matrix) Matrix {
	t.y.resize(x.Rows, x.Cols)
	for i, v := range x.Data {
		t.y.Data[i] = float32(math.Tanh(float64(v)))
	}
	return t.y
}

// Backward returns dy (1 - y²).
func (t *Tanh) Backward(dy Matrix, input bool) Matrix {
	sameShape(dy, t.y)
	if !input {
		return Matrix{}
	}
	t.dx.resize(dy.Rows, dy.Cols)
	for i, y := range t.y.Data {
		t.dx.Data[i] = dy.Data[i] * (1 - float32(y*y))
	}
	return t.dx
}
