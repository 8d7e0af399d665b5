package nn

import (
	"math"

	"ddpbatch/trainer/internal/vec"
)

// ReLU is y = max(x, 0), element by element. NaN stays NaN, so that a model with wrong
// numbers shows it in its loss. At 0 the gradient is 0, as in PyTorch.
type ReLU struct{ elementwise }

// NewReLU returns a rectifier for batches of any width.
func NewReLU() *ReLU { return &ReLU{elementwise{function: vec.ReLU, gradient: vec.ReLUGrad}} }

// Tanh is the hyperbolic tangent, element by element.
type Tanh struct{ elementwise }

// NewTanh returns a hyperbolic tangent for batches of any width.
func NewTanh() *Tanh { return &Tanh{elementwise{function: vec.Tanh, gradient: vec.TanhGrad}} }

// elementwise is a module y = f(x), element by element, whose gradient follows from y.
type elementwise struct {
	stateless
	function func(y, x []float32)
	gradient func(dx, y, dy []float32)
	y, dx    Matrix
}

// Forward returns f(x).
func (e *elementwise) Forward(_ *Pass, x Matrix) Matrix {
	e.y.resize(x.Rows, x.Cols)
	e.function(e.y.Data, x.Data)
	return e.y
}

// Backward returns dy f'(x).
func (e *elementwise) Backward(_ *Pass, dy Matrix, input bool) Matrix {
	sameShape(dy, e.y)
	if !input {
		return Matrix{}
	}
	e.dx.resize(dy.Rows, dy.Cols)
	e.gradient(e.dx.Data, e.y.Data, dy.Data)
	return e.dx
}

// GELU is y = x Phi(x), element by element, where Phi is the normal distribution function: torch.nn.GELU in its exact form
// (Hendrycks, Gimpel: Gaussian Error Linear Units, arXiv 1606.08415).
type GELU struct {
	stateless
	x Matrix // the input of the last Forward
	y Matrix // the output, and after Backward the input's gradient: the output is not read any more by then
}

// NewGELU returns a GELU for batches of any width.
func NewGELU() *GELU { return new(GELU) }

// Forward returns x Phi(x).
func (g *GELU) Forward(_ *Pass, x Matrix) Matrix {
	g.x = x
	g.y.resize(x.Rows, x.Cols)
	vec.GELU(g.y.Data, x.Data)
	return g.y
}

// Backward returns dy (Phi(x) + x phi(x)), where phi is the density of Phi.
func (g *GELU) Backward(_ *Pass, dy Matrix, input bool) Matrix {
	sameShape(dy, g.x)
	if !input {
		return Matrix{}
	}
	vec.GELUGrad(g.y.Data, g.x.Data, dy.Data)
	return g.y
}

// Dropout is torch.nn.Dropout. In training, each element is set to 0 with probability p and otherwise multiplied by 1/(1-p), so
// that its expectation stays the same. In evaluation the input is returned unchanged.
//
// Which elements are dropped depends only on Pass.Seed, the layer's stream and the element's index in the
// batch: a step that is repeated drops the same ones. The choice is kept for Backward.
type Dropout struct {
	stateless
	stream  uint64
	below   uint64     // an element is dropped if its 32 random bits are below this
	factors [2]float32 // of elements that stay, and of elements that are dropped
	active  bool       // in the last Forward
	y       Matrix
	dx      Matrix // the factor of each element after an active Forward, then the input's gradient
}

// NewDropout returns a dropout with probability p in [0, 1]. Each dropout of a model needs its own stream.
func NewDropout(p float64, stream uint64) *Dropout {
	if !(p >= 0 && p <= 1) {
		panic("nn: the probability of dropout is not between 0 and 1")
	}
	d := &Dropout{stream: stream, below: uint64(math.Round(p * (1 << 32)))}
	if p < 1 {
		d.factors[0] = float32(1 / (1 - p))
	}
	return d
}

// Forward drops elements of x, or returns x itself.
func (d *Dropout) Forward(p *Pass, x Matrix) Matrix {
	d.active = p.Training && d.below > 0
	if !d.active {
		d.y.Rows, d.y.Cols = x.Rows, x.Cols
		return x
	}
	d.y.resize(x.Rows, x.Cols)
	d.dx.resize(x.Rows, x.Cols)
	d.draw(p.Seed)
	vec.Mul(d.y.Data, x.Data, d.dx.Data) // NaN stays NaN
	return d.y
}

// draw sets the factor of each element. It selects the factor without a branch, which could not be predicted.
func (d *Dropout) draw(seed uint64) {
	rest := d.dx.Data
	for block := uint64(0); len(rest) > 0; block++ {
		words := philox(seed, [2]uint64{block, d.stream})
		n := min(len(words), len(rest))
		for i := range rest[:n] {
			dropped := (uint64(words[i]) - d.below) >> 63
			rest[i] = d.factors[dropped]
		}
		rest = rest[n:]
	}
}

// Backward drops the same elements of dy.
func (d *Dropout) Backward(_ *Pass, dy Matrix, input bool) Matrix {
	sameShape(dy, d.y)
	if !input {
		return Matrix{}
	}
	if !d.active {
		return dy
	}
	vec.Mul(d.dx.Data, d.dx.Data, dy.Data)
	return d.dx
}
