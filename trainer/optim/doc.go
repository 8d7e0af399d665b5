// Package optim contains the optimizers of the built-in trainer and what their steps need: learning-rate
// schedules, clipping of gradients, and the loss scale of float16. All compute the same as PyTorch 1.13's of the same
// names.
//
//	cfg := optim.Default("adamw")
//	cfg.LR = 3e-4
//	opt, err := optim.New(model.Params(), cfg)
//	schedule, err := optim.NewSchedule(optim.ScheduleConfig{Kind: "cosine", WarmupSteps: 100, Steps: steps}, cfg.LR)
//	...
//	nn.ZeroGrad(model.Params())
//	model.Backward(&pass, dlogits, false)
//	norm := math.Sqrt(optim.SquaredNorm(model.Params()))
//	optim.ClipGradNorm(model.Params(), 1, norm)
//	opt.SetLR(schedule.LR(step))
//	opt.Step()
//
// # Bits
//
// In a step of an optimizer every product is rounded to float32 before it is added to anything. PyTorch's
// kernels without fused instructions do the same and give the same bits; its AVX2 kernels
// differ in the last places. Coefficients, such as 1 - beta1 or a learning rate divided by a bias correction, are
// computed in float64 and rounded once. So the bits are the same on all machines, and do not depend on the other
// parameters of an optimizer. Norms, which LAMB and clipping need, are sums of float64 in a fixed order, also with the same
// bits on all machines.
//
// # State
//
// An optimizer's state is accessible as named slices, Slots: saving them after any step and filling them again restores the
// optimizer exactly. A schedule has no state; it is a function of the step.
//
// # Limits
//
// A step does not allocate and uses one core. Only one goroutine at a time may use an optimizer. There are no
// parameter groups: one configuration applies to all parameters, but several optimizers may each have some of the parameters.
package optim
