// Package nn holds the layers and losses of the built-in trainer: small modules
// that compose, with gradients written out by hand.
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
// A [Pass] says how to compute: for training or evaluation, with which library for matrix products, and who wants to know when a
// gradient is complete. A module of a user's own is whatever implements [Module].
//
// # Conventions
//
// Everything is float32 in row-major matrices, a row for each sample of the
// batch, or for each symbol inside of a transformer. An image is a row of its channels, one after another (NCHW). A batch may have
// no rows. Parameters of layers have PyTorch's names, layouts and initial values, so that a
// state_dict and a model here can be exchanged by name and shape; [NewGPT] begins as GPT-2 does.
//
// A gradient accumulates, as PyTorch's .grad does: Backward adds to Param.Grad and
// ZeroGrad clears. Value and Grad are slices that may be replaced by others of the same
// length, which is how gradients of all layers become views of one buffer.
//
// # Buffers
//
// A module owns what it returns: the matrix is valid, and may be read but
// not written, until the module's next Forward or Backward, whose result may lie where it lay. What it is given it may keep
// until the Backward that belongs to it, of which there is at most one, so the caller must not change x in
// between. Once the largest batch has been seen, a step allocates nothing.
//
// # Limits
//
// A module is used by one goroutine at a time and computes on one core, but for matrix products, which the library of the
// Pass may compute on several. On machines of one kind, with the same library and number of its threads, equal input gives equal
// bits. Shapes that do not fit are programmer errors and panic.
package nn
