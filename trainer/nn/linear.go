package nn

import (
	"gonum.org/v1/gonum/blas"

	"ddpbatch/trainer/internal/vec"
)

// Linear is y = x Wᵀ + b, with PyTorch's layout: "weight" is [out, in] and "bias" [out].
type Linear struct {
	parameters
	weight *Param
	bias   *Param // nil: none
	x      Matrix // the input of the last Forward
	y      Matrix
	dx     *Matrix // the layer's own, or one that all layers of a model share
}

// NewLinear returns a layer from in to out features. Weight, then bias, are drawn from
// U(-1/sqrt(in), 1/sqrt(in)), as torch.nn.Linear does.
func NewLinear(in, out int, src Source) *Linear {
	l := newLinear(in, out, true)
	fanIn(l.weight.Value, l.bias.Value, in, src)
	return l
}

// newLinear returns a layer whose parameters are 0.
func newLinear(in, out int, bias bool) *Linear {
	if in < 1 || out < 1 {
		panic("nn: a linear layer needs at least one input and one output")
	}
	l := &Linear{weight: newParam("weight", out, in), dx: new(Matrix)}
	l.parameters = parameters{l.weight}
	if bias {
		l.bias = newParam("bias", out)
		l.parameters = append(l.parameters, l.bias)
	}
	return l
}

func (l *Linear) weights(data []float32) Matrix {
	return Matrix{Rows: l.weight.Shape[0], Cols: l.weight.Shape[1], Data: data}
}

// Forward returns x Wᵀ + b.
func (l *Linear) Forward(p *Pass, x Matrix) Matrix {
	l.take(x)
	if l.bias != nil {
		for i := range l.y.Rows {
			copy(l.y.Row(i), l.bias.Value)
		}
	}
	// The product adds to the bias. A library that overwrites would clear first, which takes as long as this copy.
	p.Product(l.y, x, blas.NoTrans, l.weights(l.weight.Value), blas.Trans, l.bias != nil)
	return l.y
}

// forwardOnto returns base + x Wᵀ + b. It takes the same time as Forward.
func (l *Linear) forwardOnto(p *Pass, x, base Matrix) Matrix {
	l.take(x)
	sameShape(base, l.y)
	if l.bias == nil {
		copy(l.y.Data, base.Data)
	} else {
		for i := range l.y.Rows {
			vec.AddTo(l.y.Row(i), base.Row(i), l.bias.Value)
		}
	}
	p.Product(l.y, x, blas.NoTrans, l.weights(l.weight.Value), blas.Trans, true)
	return l.y
}

// take keeps x for Backward, and makes room for the output.
func (l *Linear) take(x Matrix) {
	if x.Cols != l.weight.Shape[1] {
		panic("nn: input of a linear layer has the wrong width")
	}
	l.x = x
	l.y.resize(x.Rows, l.weight.Shape[0])
}

// Backward adds dW = dyᵀ x and db = the sum of dy's rows, and returns dx = dy W.
func (l *Linear) Backward(p *Pass, dy Matrix, input bool) Matrix {
	sameShape(dy, l.y)
	p.Product(l.weights(l.weight.Grad), dy, blas.Trans, l.x, blas.NoTrans, true)
	p.Done(l.weight)
	if l.bias != nil {
		vec.SumRows(l.bias.Grad, dy.Data)
		p.Done(l.bias)
	}
	if !input {
		return Matrix{}
	}
	l.dx.resize(l.x.Rows, l.x.Cols)
	p.Product(*l.dx, dy, blas.NoTrans, l.weights(l.weight.Value), blas.NoTrans, false)
	return *l.dx
}
