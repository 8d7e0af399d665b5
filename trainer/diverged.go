package trainer

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"ddpbatch/mpi"
	"ddpbatch/trainer/data"
	"ddpbatch/trainer/internal/vec"
	"ddpbatch/trainer/nn"
)

// badPass is the first pass of this rank whose loss was not finite, kept for explainLoss. Looking into it at once would overwrite what the
// layers keep for Backward, in which other ranks may wait for this one.
type badPass struct {
	step  int64 // 0: there was none
	batch data.Batch
	seed  uint64
}

// noteLoss keeps the pass that has just gone through the model, if its loss is the first that is not finite.
func (t *trainer) noteLoss(loss float64) {
	if finite(loss) || t.bad.step > 0 {
		return
	}
	b := t.last
	t.bad = badPass{step: t.at.Step + 1, batch: data.Batch{
		Rows: b.Rows, X: slices.Clone(b.X), Y: slices.Clone(b.Y), Labels: slices.Clone(b.Labels),
	}, seed: t.pass.Seed}
}

// explainLoss ends training after a loss that is not finite, on all ranks, with the step in which the first rank had one, and with the
// cause if a rank finds one; the lowest such rank's counts. step is the last step that was begun.
func (t *trainer) explainLoss(ctx context.Context, step int64, loss float64) error {
	if err := t.divergedInSave(ctx); err != nil {
		return err
	}
	bad := t.bad
	if bad.step == 0 { // another rank had it, or this stage of a pipeline does not compute the loss
		bad = badPass{step: step, batch: *t.last, seed: t.pass.Seed}
	}
	first := []int64{bad.step}
	if err := mpi.AllReduce(ctx, t.env.Comm, first, mpi.Min); err != nil {
		return err
	}
	what := fmt.Sprintf("the loss is %v", loss)
	// Batch normalization over ranks would wait for the others, which may have nothing to look into.
	pass := nn.Pass{Training: t.batchNorm == nil, BLAS: t.blas, Seed: bad.seed}
	var own error
	if fault := t.engine.firstNonFinite(&pass, &bad.batch); fault != "" {
		own = t.diverged(first[0], what+", as "+fault)
	}
	if err := mpi.Agree(ctx, t.env.Comm, own, classes...); err != nil {
		return err
	}
	if t.env.Comm.Rank() == 0 {
		own = t.diverged(first[0], what+", although the outputs are finite")
	}
	return mpi.Agree(ctx, t.env.Comm, own, classes...)
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// firstNonFiniteOf names the first of layers whose output for x is not finite. It returns "" if there is none.
func firstNonFiniteOf(layers *nn.Sequential, pass *nn.Pass, x nn.Matrix) string {
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

// diverged returns an ErrDiverged that says what is not finite and which checkpoint is left.
func (t *trainer) diverged(step int64, what string) error {
	left := "there is no checkpoint"
	if t.saver != nil {
		t.committedStep = max(t.committedStep, t.saver.Stats().Step)
	}
	if t.committedStep >= 0 {
		left = fmt.Sprintf("the newest checkpoint is of step %d", t.committedStep)
	}
	return fmt.Errorf("%w at step %d (epoch %d): %s; lower optimizer.lr (now %v) or look at the data; %s",
		ErrDiverged, step, t.at.Epoch, what, t.cfg.Optimizer.LR, left)
}

// inStep adds to an error the step in which it happened.
func inStep(step int64, err error) error { return fmt.Errorf("step %d: %w", step, err) }

// exponent is the bits of a float32 that are all set if it is not finite.
const exponent = 0x7f800000

// checkSaved refuses to save a state that is not finite. data are float32s, little-endian; the Saver adds the name of the array.
func (t *trainer) checkSaved(_ string, data []byte) error {
	for ; len(data) >= 4; data = data[4:] {
		if bits := binary.LittleEndian.Uint32(data); bits&exponent == exponent {
			return fmt.Errorf("%w: it holds %v; lower optimizer.lr (now %v) or look at the data",
				ErrDiverged, math.Float32frombits(bits), t.cfg.Optimizer.LR)
		}
	}
	return nil
}
