package trainer

import (
	"context"

	"ddpbatch/mpi"
)

// What travels with the gradients, as sums over all ranks.
const (
	lossSum  = iota // of the ranks' shares of the step's mean loss
	stopSum         // ranks that were asked to stop
	hasteSum        // whether rank 0 is inHaste
	sums
)

// beginner is what is called in a pass once its loss is known.
func (t *trainer) beginner(last bool) func(context.Context, float64) {
	if last && !t.alone() {
		return t.begin
	}
	return t.note
}

// addLoss takes note of the loss of a pass.
func (t *trainer) addLoss(_ context.Context, loss float64) {
	t.sums[lossSum] += loss * t.share
	t.noteLoss(loss)
}

// beginSums is addLoss of a step's last pass. It starts the averaging of gradients, which goes on while these are computed, and
// sends the sums along.
func (t *trainer) beginSums(ctx context.Context, loss float64) {
	t.addLoss(ctx, loss)
	t.ask()
	t.ddp.Begin(ctx, &t.pass, t.sums[:])
}

// finishSums waits until gradients are averages and sums are sums.
func (t *trainer) finishSums(ctx context.Context) error {
	if t.alone() {
		t.sums[lossSum] *= float64(t.layout.replicas) // the rank's own rows stand for all
	} else if err := t.ddp.Finish(); err != nil {
		return err
	}
	if t.alone() && t.batchNorm != nil && t.batchNorm.Err() != nil {
		return t.batchNorm.Err()
	}
	return t.overStages(ctx, t.sums[:])
}

// overStages adds up what each stage of a pipeline has, where there are any.
func (t *trainer) overStages(ctx context.Context, sums []float64) error {
	if t.layout.line == nil {
		return nil
	}
	return mpi.AllReduce(ctx, t.layout.line, sums, mpi.Sum)
}
