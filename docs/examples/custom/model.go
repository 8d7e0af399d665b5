package main

import (
	"ddpbatch/trainer/data"
	"ddpbatch/trainer/nn"
)

// newModel composes modules, with names as in PyTorch's OrderedDict: "hidden.weight", "norm.running_mean", "act.weight".
func newModel(spec data.Spec, src nn.Source) *nn.Sequential {
	const width = 64
	return nn.NewNamed(
		nn.Child{Name: "hidden", Module: nn.NewLinear(spec.Inputs, width, src)},
		nn.Child{Name: "norm", Module: nn.NewBatchNorm1d(width, nil)}, // nil: each rank's own statistics
		nn.Child{Name: "act", Module: newPReLU(width)},
		nn.Child{Name: "mix", Module: nn.NewLinear(width, width, src)},
		nn.Child{Name: "act2", Module: newPReLU(width)},
		nn.Child{Name: "head", Module: nn.NewLinear(width, spec.Classes, src)},
	)
}

// preLU is torch.nn.PReLU: y = x if x > 0, else a x, with a learned a for each column. It is a module
// written by hand, including its gradient.
type preLU struct {
	a  *nn.Param
	x  nn.Matrix // the input of the last Forward
	y  nn.Matrix
	dx nn.Matrix
}

func newPReLU(columns int) *preLU {
	a := &nn.Param{Name: "weight", Shape: []int{columns}, Value: make([]float32, columns), Grad: make([]float32, columns)}
	for j := range a.Value {
		a.Value[j] = 0.25
	}
	return &preLU{a: a}
}

func (l *preLU) Params() []*nn.Param   { return []*nn.Param{l.a} }
func (l *preLU) Buffers() []*nn.Buffer { return nil }

func (l *preLU) Forward(_ *nn.Pass, x nn.Matrix) nn.Matrix {
	l.x = x
	grow(&l.y, x)
	for i := range x.Rows {
		y, row := l.y.Row(i), x.Row(i)
		for j, v := range row {
			if y[j] = v; v <= 0 {
				y[j] = l.a.Value[j] * v
			}
		}
	}
	return l.y
}

// Backward adds to the gradient of a, and calls Done once it is complete: then DDP may send it. If input is false, dx is not needed.
func (l *preLU) Backward(p *nn.Pass, dy nn.Matrix, input bool) nn.Matrix {
	for i := range dy.Rows {
		row := l.x.Row(i)
		for j, g := range dy.Row(i) {
			if row[j] <= 0 {
				l.a.Grad[j] += row[j] * g
			}
		}
	}
	p.Done(l.a)
	if !input {
		return nn.Matrix{}
	}
	grow(&l.dx, dy)
	for i := range dy.Rows {
		dx, row := l.dx.Row(i), l.x.Row(i)
		for j, g := range dy.Row(i) {
			if dx[j] = g; row[j] <= 0 {
				dx[j] = l.a.Value[j] * g
			}
		}
	}
	return l.dx
}

// grow gives m the shape of x. m keeps its memory, so that a step does not allocate.
func grow(m *nn.Matrix, x nn.Matrix) {
	if cap(m.Data) < len(x.Data) {
		m.Data = make([]float32, len(x.Data))
	}
	*m = nn.Matrix{Rows: x.Rows, Cols: x.Cols, Data: m.Data[:len(x.Data)]}
}
