// Package optim holds the optimizers of the built-in trainer and what belongs to their step: learning-rate
// schedules, clipping of gradients, and the loss scale of float16. All compute as PyTorch 1.13's of the same names
// do.
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
// In a step of an optimizer every product is rounded to float32 before it is added to anything, as PyTorch's
// kernels without fused instructions do: those give the same bits as ours, and the ones that its AVX2 kernels give
// differ in the last places. Coefficients, such as 1 - beta1 or a learning rate over a bias correction, are
// computed in float64 and rounded once. So the bits are the same on all machines, and do not depend on which other
// parameters an optimizer has. Norms, which LAMB and clipping need, are sums of float64 in one order, with the same
// bits on all machines too.
//
// # State
//
// An optimizer's state is exposed as named slices, Slots: who saves them at any step and fills them again has the
// optimizer exactly as it was. A schedule has no state, it is a function of the step.
//
// # Limits
//
// A step allocates nothing and works on one core. An optimizer is used by one goroutine at a time. There are no
// parameter groups: one setting for all, but several optimizers may each have some of the parameters.
package optim
