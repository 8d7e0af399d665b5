package nn

import "iter"

// Param is a named parameter with its gradient.
type Param struct {
	Name  string // "0.weight": the path of the layer, then PyTorch's name in it
	Shape []int  // of Value and Grad, row-major
	Value []float32
	Grad  []float32
	// HasGrad tells whether a Backward has added to Grad since ZeroGrad. A parameter without is unused: false stands for
	// PyTorch's .grad of None, and optimizers leave such a parameter as it is.
	HasGrad bool

	seen bool // by the Distinct that is going on
}

func newParam(name string, shape ...int) *Param {
	size := sizeOf(shape)
	return &Param{Name: name, Shape: shape, Value: make([]float32, size), Grad: make([]float32, size)}
}

// Buffer is a named part of a module's state that is not trained, such as a running mean.
type Buffer struct {
	Name  string
	Shape []int
	Value []float32
}

func newBuffer(name string, shape ...int) *Buffer {
	return &Buffer{Name: name, Shape: shape, Value: make([]float32, sizeOf(shape))}
}

func sizeOf(shape []int) int {
	size := 1
	for _, n := range shape {
		size *= n
	}
	return size
}

// Distinct goes through params in their order and yields each once, however often it is listed. It takes notes in the
// parameters, which needs neither memory nor a search: one goroutine does so at a time, and not once more within its loop.
func Distinct(params []*Param) iter.Seq[*Param] {
	return func(yield func(*Param) bool) {
		for _, p := range params {
			p.seen = false
		}
		for _, p := range params {
			if p.seen {
				continue
			}
			p.seen = true
			if !yield(p) {
				return
			}
		}
	}
}

// ZeroGrad sets all gradients to zero and HasGrad to false: PyTorch's zero_grad(set_to_none=True), its default since 2.0.
// With the zeros that set_to_none=False leaves, PyTorch's optimizers still decay unused parameters and use up their momentum.
func ZeroGrad(params []*Param) {
	for _, p := range params {
		clear(p.Grad)
		p.HasGrad = false
	}
}
