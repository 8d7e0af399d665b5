package nn

import (
	"math"

	"ddpbatch/trainer/internal/vec"
)

// Dropout is torch.nn.Dropout: in training, each element is 0 with probability p and multiplied by 1/(1-p) otherwise, so
// that its expectation stays; in evaluation it is passed on.
//
// Which elements are dropped is a function of Pass.Seed, the layer's stream and the element's index in the
// batch, and of nothing else: a step that is done again drops the same ones. Which they were is kept for Backward.
type Dropout struct {
	stream  uint64
	below   uint64     // an element is dropped if its 32 random bits are below this
	factors [2]float32 // of elements that stay, and of those that are dropped
	active  bool       // in the last Forward
	y       Matrix
	dx      Matrix // the factor of each element after an active Forward, then the input's gradient
}

// NewDropout returns a dropout with probability p in [0, 1]. Each of a model has its own stream.
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

// Params returns none.
func (*Dropout) Params() []*Param { return nil }

// Buffers returns none.
func (*Dropout) Buffers() []*Buffer { return nil }

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

// draw sets the factor of each element. Whether it is dropped costs no branch, which could not be predicted.
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
