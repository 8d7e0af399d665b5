package nn

import (
	"math"

	"gonum.org/v1/gonum/blas"
)

// Linear is y = x Wᵀ + b, with PyTorch's layout: "weight" is [out, in] and "bias" [out].
type Linear struct {
	weight, bias *Param
	params       []*Param
	x            Matrix // what the last Forward was given
	y, dx        Matrix
}

// NewLinear returns a layer from in to out features. Weight, then bias, are drawn from
// U(-1/sqrt(in), 1/sqrt(in)), as torch.nn.Linear does.
func NewLinear(in, out int, src Source) *Linear {
	if in < 1 || out < 1 {
		panic("nn: a linear layer needs at least one input and one output")
	}
	l := &Linear{weight: newParam("weight", out, in), bias: newParam("bias", out)}
	l.params = []*Param{l.weight, l.bias}
	bound := float32(1 / math.Sqrt(float64(in)))
	uniform(l.weight.Value, bound, src)
	uniform(l.bias.Value, bound, src)
	return l
}

// Params returns the weight and the bias.
func (l *Linear) Params() []*Param { return l.params }

func (l *Linear) weights(data []float32) Matrix {
	return Matrix{Rows: l.weight.Shape[0], Cols: l.weight.Shape[1], Data: data}
}

// Forward returns x Wᵀ + b.
func (l *Linear) Forward(x Matrix) Matrix {
	w := l.weights(l.weight.Value)
	if x.Cols != w.Cols {
		panic("nn: input of a linear layer has the wrong width")
	}
	l.x = x
	l.y.resize(x.Rows, w.Rows)
	for i := range x.Rows {
		copy(l.y.Row(i), l.bias.Value)
	}
	addProduct(l.y, x, blas.NoTrans, w, blas.Trans)
	return l.y
}

// Backward adds dW = dyᵀ x and db = the sum of dy's rows, and returns dx = dy W.
func (l *Linear) Backward(dy Matrix, input bool) Matrix {
	sameShape(dy, l.y)
	addProduct(l.weights(l.weight.Grad), dy, blas.Trans, l.x, blas.NoTrans)
	for i := range dy.Rows {
		for j, v := range dy.Row(i) {
			l.bias.Grad[j] += v
		}
	}
	if !input {
		return Matrix{}
	}
	l.dx.resize(l.x.Rows, l.x.Cols)
	clear(l.dx.Data)
	addProduct(l.dx, dy, blas.NoTrans, l.weights(l.weight.Value), blas.NoTrans)
	return l.dx
}
