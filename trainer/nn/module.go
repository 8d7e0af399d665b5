package nn

// Module is a differentiable function of a batch, with or without parameters.
//
// There is at most one Backward for each Forward, which it follows before the next Forward: it may overwrite what the
// Forward has kept for it. To evaluate, Forward is called alone. Who owns the matrices is said in the package's documentation.
type Module interface {
	// Forward returns y = f(x). Most modules give one row for each row of x; those of a transformer
	// give one for each symbol.
	Forward(p *Pass, x Matrix) Matrix

	// Backward takes dL/dy of the last Forward, adds dL/dw to the Grad of every parameter
	// w, calls p.Done(w) for it, and returns dL/dx. Where input is false nobody wants that last one: it is
	// not computed, and the result is the empty matrix.
	Backward(p *Pass, dy Matrix, input bool) Matrix

	// Params returns the parameters in the order of PyTorch's named_parameters, but lists one that several modules share at
	// each of its uses, as each of them calls Done for it. The slice is the module's own.
	Params() []*Param

	// Buffers returns what else belongs to the state, in the order of PyTorch's named_buffers, a shared one at each of its
	// uses. The slice is the module's own.
	Buffers() []*Buffer
}
