// Package nn contains the layers and losses of the built-in trainer: small modules
// that can be composed, with gradients written by hand.
//
//	src := rand.New(rand.NewPCG(1, 2)) // or any other Source
//	model := nn.NewSequential(nn.NewLinear(784, 128, src), nn.NewReLU(), nn.NewLinear(128, 10, src))
//	pass := nn.Pass{Training: true}
//	var loss nn.CrossEntropy
//
//	nn.ZeroGrad(model.Params())
//	logits := model.Forward(&pass, x)
//	value, dlogits := loss.Loss(logits, labels)
//	model.Backward(&pass, dlogits, false)
//
// A [Pass] says how to compute: whether to train or evaluate, with which library for matrix products, and what to call when a
// gradient is complete. Any type that implements [Module] can be a module.
//
// # Conventions
//
// Everything is float32 in row-major matrices, with a row for each sample of the
// batch, or for each symbol inside a transformer. An image is a row of its channels, one after another (NCHW). A batch may have
// no rows. Parameters of layers have PyTorch's names, layouts and initial values, so that a
// state_dict and a model here can be exchanged by name and shape; [NewGPT] is initialized as GPT-2 is.
//
// A gradient accumulates, as PyTorch's .grad does: Backward adds to Param.Grad and
// ZeroGrad clears. Value and Grad are slices that may be replaced by others of the same
// length, so that the gradients of all layers can become views of one buffer.
//
// # Buffers
//
// A module owns what it returns: the matrix is valid, and may be read but
// not written, until the module's next Forward or Backward, whose result may use the same memory. A module may keep its input
// until the Backward that belongs to it, of which there is at most one, so the caller must not change x in
// between. Once the largest batch has been seen, a step does not allocate.
//
// # Limits
//
// Only one goroutine at a time may use a module, and it computes on one core, except for matrix products, which the library of the
// Pass may compute on several. On machines of one kind, with the same library and number of its threads, equal input gives equal
// bits. Shapes that do not match are programming errors and panic.
package nn
