// Package nn holds the layers and losses of the built-in trainer: small modules
// that compose, with gradients written out by hand.
//
//	src := rand.New(rand.NewPCG(1, 2)) // or any other Source
//	model := nn.NewSequential(nn.NewLinear(784, 128, src), nn.NewReLU(), nn.NewLinear(128, 10, src))
//	var loss nn.CrossEntropy
//
//	logits := model.Forward(x)
//	value, dlogits := loss.Loss(logits, labels)
//	nn.ZeroGrad(model.Params())
//	model.Backward(dlogits, false)
//
// # Conventions
//
// Everything is float32 in row-major matrices, a row for each sample of the
// batch. Parameters have PyTorch's names, layouts and initial values, so that a
// state_dict and a model here can be exchanged by name and shape.
//
// A gradient accumulates, as PyTorch's .grad does: Backward adds to Param.Grad and
// ZeroGrad clears. Value and Grad are slices that may be replaced by others of the same
// length, which is how gradients of all layers become views of one buffer.
//
// # Buffers
//
// A module owns what it returns: the matrix is valid, and may be read but
// not written, until the module's next Forward or Backward. What it is given it may keep
// until the Backward that belongs to it, so the caller must not change x in
// between. Once the largest batch has been seen, a step allocates nothing.
//
// # Limits
//
// A module is used by one goroutine at a time and computes on one core: matrix
// products are gonum's, cut so that it does not start goroutines. Sums are therefore
// taken in the same order whatever the number of cores, and equal input gives
// equal bits. Shapes that do not fit are programmer errors and panic.
package nn
