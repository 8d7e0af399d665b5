package nn

import "ddpbatch/trainer/internal/vec"

// layerNormEps is torch.nn.LayerNorm's default.
const layerNormEps = 1e-5

// LayerNorm is y = (x - mean) / sqrt(variance + 1e-5) * weight + bias with the mean and the (biased) variance of each row,
// torch.nn.LayerNorm (Ba, Kiros, Hinton: Layer Normalization, arXiv 1607.06450).
type LayerNorm struct {
	weight, bias *Param
	params       []*Param
	x            Matrix       // what the last Forward was given
	stats        [][2]float32 // mean and 1/sqrt(variance + eps) of each row of x
	y            Matrix       // the input's gradient after Backward: nobody reads y any more by then
}

// NewLayerNorm returns a normalization of rows of the given width, with weight 1 and bias 0.
func NewLayerNorm(width int) *LayerNorm {
	if width < 1 {
		panic("nn: layer normalization needs at least one column")
	}
	l := &LayerNorm{weight: newParam("weight", width), bias: newParam("bias", width)}
	l.params = []*Param{l.weight, l.bias}
	for i := range l.weight.Value {
		l.weight.Value[i] = 1
	}
	return l
}

// Params returns the weight and the bias.
func (l *LayerNorm) Params() []*Param { return l.params }

// Buffers returns none.
func (*LayerNorm) Buffers() []*Buffer { return nil }

// Forward normalizes each row of x.
func (l *LayerNorm) Forward(_ *Pass, x Matrix) Matrix {
	if x.Cols != len(l.weight.Value) {
		panic("nn: input of a layer normalization has the wrong width")
	}
	l.x = x
	l.y.resize(x.Rows, x.Cols)
	if cap(l.stats) < x.Rows {
		l.stats = make([][2]float32, x.Rows)
	}
	l.stats = l.stats[:x.Rows]
	for i := range x.Rows {
		mean, rstd := vec.Normalize(l.y.Row(i), x.Row(i), l.weight.Value, l.bias.Value, layerNormEps)
		l.stats[i] = [2]float32{mean, rstd}
	}
	return l.y
}

// Backward adds the gradients of weight and bias and returns that of x.
func (l *LayerNorm) Backward(p *Pass, dy Matrix, input bool) Matrix {
	sameShape(dy, l.y)
	for i, s := range l.stats {
		vec.NormalizeGrad(l.y.Row(i), l.weight.Grad, l.bias.Grad, l.x.Row(i), dy.Row(i), l.weight.Value, s[0], s[1])
	}
	p.Done(l.bias)
	p.Done(l.weight)
	if !input {
		return Matrix{}
	}
	return l.y
}
