package trainer

import (
	"context"
	"fmt"

	"ddpbatch/mpi"
	"ddpbatch/trainer/ddp"
)

// What is summed over all ranks together with the gradients.
const (
	lossSum  = iota // of the ranks' shares of the step's mean loss
	stopSum         // number of ranks that were asked to stop
	quickSum        // number of ranks (only rank 0 counts itself) that need a quick save
	sums
)

// lossKnown is called in a pass once its loss is known. In a step's last pass it starts the averaging of gradients, which runs while
// they are computed, and sends the sums along.
func (t *trainer) lossKnown(ctx context.Context, loss float64) {
	t.sums[lossSum] += loss * t.share
	t.noteLoss(loss)
	if t.lastPass && !t.stepsAlone() {
		t.addStopRequests()
		t.ddp.Begin(ctx, &t.pass, t.sums[:])
	}
}

// finishSums waits until the gradients have been averaged and the sums added up.
func (t *trainer) finishSums(ctx context.Context) error {
	if t.stepsAlone() {
		t.sums[lossSum] *= float64(t.topology.replicas) // as if the other ranks' rows had the same loss
	} else if err := t.ddp.Finish(); err != nil {
		return err
	}
	if t.stepsAlone() && t.batchNorm != nil && t.batchNorm.Err() != nil {
		return t.batchNorm.Err()
	}
	return t.overStages(ctx, t.sums[:])
}

// overStages adds up sums over the stages of a pipeline. Without a pipeline it does nothing.
func (t *trainer) overStages(ctx context.Context, sums []float64) error {
	if t.topology.pipelineGroup == nil {
		return nil
	}
	return mpi.AllReduce(ctx, t.topology.pipelineGroup, sums, mpi.Sum)
}

// newChecks makes what averages or compares the parameters between steps.
func (t *trainer) newChecks(ctx context.Context) error {
	if t.cfg.DDP.CheckEverySteps > 0 {
		t.drift = ddp.NewDrift(t.topology.dataParallelGroup, t.params)
	}
	if t.cfg.DDP.AverageEvery == 0 {
		return nil
	}
	var all [][]float32
	for _, a := range stateOf(t.engine.model()) {
		all = append(all, a.Value)
	}
	for _, s := range t.optimizer.State() {
		all = append(all, s.Value)
	}
	var err error
	t.average, err = ddp.NewAverager(ctx, t.topology.dataParallelGroup, all, int64(t.cfg.DDP.AverageEvery), int64(t.cfg.DDP.AverageWarmup))
	return err
}

// stepsAlone reports whether this rank steps with its own gradients alone (local SGD).
func (t *trainer) stepsAlone() bool {
	return t.cfg.DDP.AverageEvery > 0 && t.topology.replicas > 1 && t.at.Step >= int64(t.cfg.DDP.AverageWarmup)
}

// averageParameters ends a phase of local SGD if one is due: parameters and the optimizer's state become their means over the ranks, and
// so does the loss. During a phase the ranks have different parameters, so no checkpoint is made, and no rank learns that another wants to
// stop, or has a loss that is not finite.
func (t *trainer) averageParameters(ctx context.Context) error {
	t.inSync = true
	last := t.at.Step - 1
	if t.average == nil || t.topology.replicas == 1 || last < int64(t.cfg.DDP.AverageWarmup) {
		return nil
	}
	if t.inSync = t.average.Due(last) || t.stepsLeft() == 0 || t.reachedMaxSteps(); !t.inSync {
		clear(t.sums[stopSum:])
		return nil
	}
	start := t.now()
	if err := t.average.Average(ctx); err != nil {
		return err
	}
	t.sums = [sums]float64{lossSum: t.at.LossSum / float64(t.topology.replicas)}
	t.addStopRequests()
	if err := mpi.AllReduce(ctx, t.topology.dataParallelGroup, t.sums[:], mpi.Sum); err != nil {
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

// compareParameters checks, if it is configured and due, whether all ranks have the same parameters. With local SGD it does so only after
// the ranks have averaged.
func (t *trainer) compareParameters(ctx context.Context) error {
	every := int64(t.cfg.DDP.CheckEverySteps)
	if every == 0 || !t.inSync || t.at.Step/every == t.checked/every {
		return nil
	}
	t.checked = t.at.Step
	return t.drift.Check(ctx, t.at.Step)
}

// ddpConfig returns how gradients are averaged.
func ddpConfig(cfg Config, hook ddp.Hook, sums *ddp.SyncBatchNorm) ddp.Config {
	c := ddp.DefaultConfig()
	c.BucketBytes = max(1, int(cfg.DDP.BucketMB*(1<<20)))
	c.FirstBucketBytes = min(c.BucketBytes, 1<<20) // as in PyTorch
	c.Overlap, c.FindUnused, c.Hook = cfg.DDP.Overlap, cfg.DDP.FindUnused, hook
	c.SyncBatchNorm = sums
	return c
}

// newHook returns the communication hook that ddp.compress names, or nil for none.
func newHook(cfg Config) (ddp.Hook, error) {
	switch cfg.DDP.Compress {
	case "float16":
		return ddp.NewFloat16Hook(), nil
	case "bfloat16":
		return ddp.NewBFloat16Hook(), nil
	case "int8":
		return ddp.NewInt8Hook(), nil
	case "powersgd":
		h, err := ddp.NewPowerSGDHook(ddp.PowerSGDConfig{Rank: cfg.DDP.Rank, Start: cfg.DDP.StartStep, MinRate: 2, Seed: cfg.Seed})
		if err != nil {
			return nil, fmt.Errorf("ddp.compress: %w", err)
		}
		return h, nil
	}
	return nil, nil
}
