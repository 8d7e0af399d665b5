package trainer

import (
	"context"
	"fmt"
	"math"

	"ddpbatch/mpi"
	"ddpbatch/trainer/ddp"
	"ddpbatch/trainer/nn"
	"ddpbatch/trainer/optim"
)

// optimizer takes the optimizer's steps together with the other ranks.
type optimizer struct {
	optim.Optimizer                            // of the parameters that this rank updates
	zero            *ddp.Zero[optim.Optimizer] // set if these are not all parameters
}

func newOptimizer(ctx context.Context, comm *mpi.Comm, params []*nn.Param, cfg OptimizerConfig) (optimizer, error) {
	factory := func(own []*nn.Param) (optim.Optimizer, error) {
		return optim.New(own, optimConfig(cfg))
	}
	if !cfg.Zero {
		whole, err := factory(params)
		return optimizer{Optimizer: whole}, err
	}
	zero, err := ddp.NewZero(ctx, comm, params, factory)
	if err != nil {
		return optimizer{}, err
	}
	return optimizer{zero.Optimizer(), zero}, nil
}

func optimConfig(cfg OptimizerConfig) optim.Config {
	c := optim.Config{Kind: cfg.Kind, LR: cfg.LR, WeightDecay: cfg.WeightDecay}
	if cfg.Kind == "sgd" {
		c.Momentum, c.Dampening, c.Nesterov = cfg.Momentum, cfg.Dampening, cfg.Nesterov
	} else {
		c.Beta1, c.Beta2, c.Eps = cfg.Betas[0], cfg.Betas[1], cfg.Eps
	}
	return c
}

// step is collective if the optimizer's state is split.
func (o *optimizer) step(ctx context.Context) error {
	if o.zero != nil {
		return o.zero.Step(ctx)
	}
	o.Step()
	return nil
}

// scheduleConfig returns the schedule of a run with the given number of steps.
func scheduleConfig(cfg ScheduleConfig, steps int64) optim.ScheduleConfig {
	c := optim.ScheduleConfig{Kind: cfg.Kind, WarmupSteps: int64(cfg.WarmupSteps), Steps: steps, MinLR: cfg.MinLR}
	if cfg.Kind == "step" {
		c.StepSize, c.Gamma = int64(cfg.StepSize), cfg.Gamma
	}
	return c
}

func newSchedule(cfg ScheduleConfig, lr float64, steps int64) (optim.Schedule, error) {
	s, err := optim.NewSchedule(scheduleConfig(cfg, steps), lr)
	if err != nil {
		return nil, fmt.Errorf("schedule.%w", err)
	}
	return s, nil
}

// lossScale returns the factor that losses are multiplied by before gradients are computed.
func (t *trainer) lossScale() float32 {
	if t.scaler == nil {
		return 1
	}
	return t.scaler.Scale()
}

// unscale divides the gradients by the loss scale. finite reports whether they are finite on all ranks: otherwise the step is
// skipped.
func (t *trainer) unscale(ctx context.Context) (finite bool, err error) {
	if t.scaler == nil {
		return true, nil
	}
	bad := []float64{0} // number of stages whose gradients are not finite; all ranks of a stage have the same
	if !t.scaler.Unscale(t.params) {
		bad[0] = 1
	}
	if err := t.overStages(ctx, bad); err != nil {
		return false, fmt.Errorf("compare gradients over the stages: %w", err)
	}
	t.scaler.Update(bad[0] == 0)
	return bad[0] == 0, nil
}

// clip limits the norm of the whole model's gradient.
func (t *trainer) clip(ctx context.Context) error {
	if t.cfg.ClipNorm == 0 {
		return nil
	}
	squares := []float64{optim.SquaredNorm(t.params)}
	if err := t.overStages(ctx, squares); err != nil {
		return fmt.Errorf("add up the gradient's norm over the stages: %w", err)
	}
	optim.ClipGradNorm(t.params, t.cfg.ClipNorm, math.Sqrt(squares[0]))
	return nil
}
