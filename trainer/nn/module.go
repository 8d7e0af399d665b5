package nn

// Module is a differentiable function of a batch, with or without parameters.
//
// The caller alternates Forward and Backward, or calls Forward alone to
// evaluate. Who owns the matrices is said in the package's documentation.
type Module interface {
	// Forward returns y = f(x). Most modules give one row for each row of x; those of a transformer
	// give one for each symbol.
	Forward(p *Pass, x Matrix) Matrix

	// Backward takes dL/dy of the last Forward, adds dL/dw to the Grad of every parameter
	// w, calls p.Done(w) for it, and returns dL/dx. Where input is false nobody wants that last one: it is
	// not computed, and the result is the empty matrix.
	Backward(p *Pass, dy Matrix, input bool) Matrix

	// Params returns the parameters in the order of PyTorch's named_parameters.
	// The slice is the module's own.
	Params() []*Param

	// Buffers returns what else belongs to the state, in the order of PyTorch's named_buffers. The slice
	// is the module's own.
	Buffers() []*Buffer
}

// Param is a named parameter with its gradient.
type Param struct {
	Name  string // "0.weight": the path of the layer, then PyTorch's name in it
	Shape []int  // of Value and Grad, row-major
	Value []float32
	Grad  []float32
	// HasGrad tells whether a Backward has added to Grad since ZeroGrad. A parameter without is unused: optimizers
	// leave it as it is, as PyTorch's do where .grad is None.
	HasGrad bool
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

// ZeroGrad sets all gradients to zero.
func ZeroGrad(params []*Param) {
	for _, p := range params {
		clear(p.Grad)
		p.HasGrad = false
	}
}
