package trainer

import (
	"context"

	"ddpbatch/mpi"
	"ddpbatch/trainer/ddp"
)

// newChecks makes what averages or compares the parameters between steps.
func (t *trainer) newChecks(ctx context.Context) error {
	if t.cfg.DDP.CheckEverySteps > 0 {
		t.drift = ddp.NewDrift(t.layout.peers, t.params)
	}
	if t.cfg.DDP.AverageEvery == 0 {
		return nil
	}
	var all [][]float32
	for _, p := range t.params {
		all = append(all, p.Value)
	}
	for _, b := range t.engine.model().Buffers() {
		all = append(all, b.Value)
	}
	for _, s := range t.optimizer.State() {
		all = append(all, s.Value)
	}
	var err error
	t.average, err = ddp.NewAverager(ctx, t.layout.peers, all, int64(t.cfg.DDP.AverageEvery), int64(t.cfg.DDP.AverageWarmup))
	return err
}

// alone tells whether this rank takes the step with gradients of its own (local SGD).
func (t *trainer) alone() bool {
	return t.cfg.DDP.AverageEvery > 0 && t.layout.replicas > 1 && t.at.Step >= int64(t.cfg.DDP.AverageWarmup)
}

// settle ends a phase of local SGD where it is time: parameters and the optimizer's state become their means over ranks, and so does
// the loss. Before that ranks hold different ones, of which no checkpoint is made, and none hears of the others' wish to stop, or of a
// loss that is no number.
func (t *trainer) settle(ctx context.Context) error {
	t.settled = true
	last := t.at.Step - 1
	if t.average == nil || t.layout.replicas == 1 || last < int64(t.cfg.DDP.AverageWarmup) {
		return nil
	}
	if t.settled = t.average.Due(last) || t.stepsLeft() == 0 || t.cut(); !t.settled {
		clear(t.sums[stopSum:])
		return nil
	}
	start := t.now()
	if err := t.average.Average(ctx); err != nil {
		return err
	}
	t.sums = [sums]float64{lossSum: t.at.LossSum / float64(t.layout.replicas)}
	t.ask()
	if err := mpi.AllReduce(ctx, t.layout.peers, t.sums[:], mpi.Sum); err != nil {
		return err
	}
	if err := t.overStages(ctx, t.sums[stopSum:]); err != nil {
		return err
	}
	if t.at.LossSum = t.sums[lossSum]; !finite(t.at.LossSum) {
		return t.explainLoss(ctx, t.at.Step, t.at.LossSum)
	}
	t.measureAverage(t.now().Sub(start))
	return nil
}

// compareParameters looks, where that is asked for, whether all ranks still have the same. With local SGD that is where they have
// averaged.
func (t *trainer) compareParameters(ctx context.Context) error {
	every := int64(t.cfg.DDP.CheckEverySteps)
	if every == 0 || !t.settled || t.at.Step/every == t.checked/every {
		return nil
	}
	t.checked = t.at.Step
	return t.drift.Check(ctx, t.at.Step)
}
