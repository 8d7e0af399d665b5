package nn

// Module is a differentiable function of a batch, with or without parameters.
//
// The caller alternates Forward and Backward, or calls Forward alone to
// evaluate. Who owns the matrices is said in the package's documentation.
type Module interface {
	// Forward returns y = f(x), one row for each row of x.
	Forward(x Matrix) Matrix

	// Backward takes dL/dy of the last Forward, adds dL/dp to the Grad of every parameter
	// p, and returns dL/dx. Where input is false nobody wants that last one: it is
	// not computed, and the result is the empty matrix.
	Backward(dy Matrix, input bool) Matrix

	// Params returns the parameters in the order of PyTorch's named_parameters.
	// The slice is the module's own.
	Params() []*Param
}

// Param is a named parameter with its gradient.
type Param struct {
	Name  string // "0.weight": the path of the layer, then PyTorch's name in it
	Shape []int  // of Value and Grad, row-major
	Value []float32
	Grad  []float32
}

func newParam(name string, shape ...int) *Param {
	size := 1
	for _, n := range shape {
		size *= n
	}
	return &Param{Name: name, Shape: shape, Value: make([]float32, size), Grad: make([]float32, size)}
}

// ZeroGrad sets all gradients to zero.
func ZeroGrad(params []*Param) {
	for _, p := range params {
		clear(p.Grad)
	}
}

// Source is where random initial values come from. *math/rand/v2.Rand is one.
type Source interface {
	Uint32() uint32
}

// uniform fills dst with U(-bound, bound) as torch.Tensor.uniform_ does: 24 random
// bits are scaled and shifted with one rounding at the end. In float64 the product of two
// 24-bit numbers is exact, so the bits do not depend on whether the machine fuses it with the sum.
func uniform(dst []float32, bound float32, src Source) {
	width := float64(bound) * 2
	for i := range dst {
		u := float64(src.Uint32()&(1<<24-1)) / (1 << 24)
		dst[i] = float32(u*width - float64(bound))
	}
}
