package trainer

import (
	"context"
	"fmt"
	"math"

	"ddpbatch/trainer/internal/vec"
	"ddpbatch/trainer/nn"
)

// explainLoss ends training after a loss that is not a number, on all ranks, with what the first rank that knows says of it.
func (t *trainer) explainLoss(ctx context.Context, loss float64) error {
	if t.fault == "" { // a stage of a pipeline that does not see the loss
		t.fault = t.findFault()
	}
	what := fmt.Sprintf("the loss is %v", loss)
	var own error
	if t.fault != "" {
		own = t.diverged(t.at.Step+1, what+", as "+t.fault)
	}
	if err := together(ctx, t.env.Comm, own); err != nil {
		return err
	}
	if t.env.Comm.Rank() == 0 {
		own = t.diverged(t.at.Step+1, what+", of finite outputs")
	}
	return together(ctx, t.env.Comm, own)
}

// findFault names the first layer of this rank that makes numbers that are not finite of the pass's rows; empty: none does. It spoils
// what the layers keep for Backward.
func (t *trainer) findFault() string {
	// Batch normalization over ranks would wait for the others, which may have no reason to look.
	pass := nn.Pass{Training: t.batchNorm == nil, BLAS: t.blas, Seed: t.pass.Seed}
	return t.engine.fault(&pass, t.last)
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// faultOf names the first of layers that makes numbers that are not finite of x; empty: none does.
func faultOf(layers *nn.Sequential, pass *nn.Pass, x nn.Matrix) string {
	if !vec.Finite(x.Data) {
		return "the inputs hold numbers that are not finite"
	}
	for _, p := range layers.Params() {
		if !vec.Finite(p.Value) {
			return fmt.Sprintf("parameter %s is not finite", p.Name)
		}
	}
	for i := range layers.Len() {
		c := layers.Child(i)
		if x = c.Module.Forward(pass, x); !vec.Finite(x.Data) {
			return fmt.Sprintf("layer %s gives numbers that are not finite", c.Name)
		}
	}
	return ""
}

// diverged says what is not a number, and what is left.
func (t *trainer) diverged(step int64, what string) error {
	left := "there is no checkpoint"
	if t.saved > 0 {
		left = fmt.Sprintf("the newest checkpoint is of step %d", t.saved)
	}
	return fmt.Errorf("%w at step %d (epoch %d): %s; lower optimizer.lr (now %v) or look at the data; %s",
		ErrDiverged, step, t.at.Epoch, what, t.cfg.Optimizer.LR, left)
}

// inStep tells in which step something went wrong.
func (t *trainer) inStep(err error) error { return fmt.Errorf("step %d: %w", t.at.Step+1, err) }
