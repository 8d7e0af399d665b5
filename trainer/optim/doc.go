// Package optim holds the optimizers of the built-in trainer. They change the
// values of parameters in place, from their gradients, and compute as
// PyTorch's optimizers of the same names do.
//
//	sgd, err := optim.NewSGD(model.Params(), optim.SGDConfig{LR: 0.1, Momentum: 0.9})
//	...
//	nn.ZeroGrad(model.Params())
//	model.Backward(dlogits, false)
//	sgd.Step()
//
// An optimizer's state is exposed as named slices: who saves them and fills
// them again has the optimizer exactly as it was. A step allocates nothing. An
// optimizer is used by one goroutine at a time.
package optim
