package nn

import (
	"gonum.org/v1/gonum/blas"

	"ddpbatch/trainer/internal/vec"
)

// Backward adds to the gradients of weight and bias, and returns that of the input.
func (l *Conv2d) Backward(p *Pass, dy Matrix, input bool) Matrix {
	sameShape(dy, l.y)
	if input {
		l.dx.resize(l.x.Rows, l.x.Cols)
	}
	clear(l.sums.Data)
	for first := 0; first < dy.Rows; first += l.group {
		n := min(l.group, dy.Rows-first)
		l.gather(first, n)
		l.join(dy, first, n)
		p.multiply(whole(l.sums), whole(l.columns), blas.NoTrans, l.grouped(dy, first), blas.Trans,
			l.sums.Rows, l.sums.Cols, n*l.out.plane(), 1, 1)
		if input {
			l.inputGradient(p, dy, first, n)
		}
	}
	l.addGradients(p)
	if !input {
		return Matrix{}
	}
	return l.dx
}

// inputGradient turns columns into the gradient of the patches, Wᵀ dy, and adds up what each value of the input has got.
func (l *Conv2d) inputGradient(p *Pass, dy Matrix, first, n int) {
	s := l.patches
	depth := s.depth()
	p.multiply(whole(l.columns), view{l.weight.Value, depth}, blas.Trans, l.grouped(dy, first), blas.NoTrans,
		depth, n*l.out.plane(), l.out.Channels, 1, 0)
	for i := range n {
		clear(l.dplanes)
		s.scatter(l.dplanes, l.columns.Data[i*l.out.plane():], l.columns.Cols)
		s.merge(l.dx.Row(first+i), l.dplanes)
	}
}

// addGradients adds the sums over the batch to the parameters' gradients.
func (l *Conv2d) addGradients(p *Pass) {
	depth := l.patches.depth()
	for i := range l.weight.Grad {
		l.weight.Grad[i] += l.sums.Data[i%depth*l.sums.Cols+i/depth]
	}
	p.Done(l.weight)
	if l.bias != nil {
		vec.Add(l.bias.Grad, l.sums.Row(depth))
		p.Done(l.bias)
	}
}
