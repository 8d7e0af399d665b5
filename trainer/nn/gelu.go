package nn

import "ddpbatch/trainer/internal/vec"

// GELU is y = x Phi(x), element by element, where Phi is the normal distribution: torch.nn.GELU in its exact form
// (Hendrycks, Gimpel: Gaussian Error Linear Units, arXiv 1606.08415).
type GELU struct {
	x Matrix // what the last Forward was given
	y Matrix // the input's gradient after Backward: nobody reads y any more by then
}

// NewGELU returns the unit for batches of any width.
func NewGELU() *GELU { return new(GELU) }

// Params returns none.
func (*GELU) Params() []*Param { return nil }

// Buffers returns none.
func (*GELU) Buffers() []*Buffer { return nil }

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
