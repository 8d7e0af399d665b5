package trainer

import (
	"context"
	"fmt"
	"math"

	"ddpbatch/trainer/nn"
)

// What travels with the gradients, as sums over ranks: the loss, and whether a rank was asked to stop.
const (
	lossScalar = iota
	stopScalar
	scalars
)

// run trains from where setUp left off to the end of the last epoch, or to a stop.
func (t *trainer) run(ctx context.Context) (Result, error) {
	for t.at.Epoch < t.cfg.Epochs {
		stopped, err := t.trainEpoch(ctx)
		if err != nil {
			return Result{}, err
		}
		if stopped {
			return t.result(true), nil
		}
		if err := t.endEpoch(ctx); err != nil {
			return Result{}, err
		}
		if t.lastEpoch() {
			break // at its end, from where a job with more epochs goes on
		}
		t.at = t.at.nextEpoch()
	}
	if err := t.save(ctx); err != nil {
		return Result{}, err
	}
	return t.result(false), nil
}

// trainEpoch takes the steps of an epoch that are left. It says whether the ranks agreed to stop
// before the run's last step; all is saved then.
func (t *trainer) trainEpoch(ctx context.Context) (stopped bool, err error) {
	t.sampler.SetEpoch(t.at.Epoch)
	t.announceEpoch()
	for t.at.Done < t.stepsPerEpoch() {
		stop, err := t.step(ctx)
		if err != nil {
			return false, err
		}
		stop = stop && t.at.Step < t.totalSteps()
		if stop || t.due() {
			if err := t.save(ctx); err != nil {
				return false, err
			}
		}
		if stop {
			t.writeMetrics(evaluation{})
			return true, nil
		}
	}
	return false, nil
}

// step trains on the next batch of every rank. It says whether any rank was asked to stop.
func (t *trainer) step(ctx context.Context) (stop bool, err error) {
	start := t.now()
	t.batch.Fill(t.train, t.nextRows())
	x := nn.Matrix{Rows: t.batch.Rows, Cols: t.train.Spec().Inputs, Data: t.batch.X}

	t.ddp.ZeroGrad()
	loss, dy := t.loss(t.model.Forward(x), &t.batch)
	t.model.Backward(dy, false)

	shared := t.ddp.Scalars()
	shared[lossScalar] = float32(loss)
	if t.askedToStop() {
		shared[stopScalar] = 1
	}
	before := t.now()
	if err := t.ddp.AllReduce(ctx); err != nil {
		return false, fmt.Errorf("step %d: %w", t.at.Step+1, err)
	}
	after := t.now()

	// The mean is NaN if any rank's loss is, so that all ranks end here together.
	world := t.env.Comm.Size()
	mean := float64(shared[lossScalar]) / float64(world)
	if math.IsNaN(mean) || math.IsInf(mean, 0) {
		return false, t.diverged(t.at.Step+1, fmt.Sprintf("the loss is %v", mean))
	}
	t.optimizer.Step()

	t.at.Step++
	t.at.Done++
	t.at.LossSum += mean
	t.measure(mean, t.batch.Rows*world, t.now().Sub(start), after.Sub(before))
	return shared[stopScalar] > 0, nil
}

// endEpoch evaluates, where that is asked for, and tells how the epoch went.
func (t *trainer) endEpoch(ctx context.Context) error {
	t.evaluation = evaluation{}
	every := t.cfg.Evaluate.EveryEpochs
	if t.eval != nil && every > 0 && (t.lastEpoch() || (t.at.Epoch+1)%every == 0) {
		var err error
		if t.evaluation, err = t.evaluate(ctx); err != nil {
			return err
		}
	}
	t.reportEpoch()
	return nil
}

// nextRows are this rank's rows of the next step. The last step of an epoch may have fewer, equally few on
// every rank.
func (t *trainer) nextRows() []int {
	rows := t.sampler.Indices()[t.at.Done*t.cfg.BatchSize:]
	return rows[:min(len(rows), t.cfg.BatchSize)]
}

func (t *trainer) stepsPerEpoch() int {
	return (t.sampler.Len() + t.cfg.BatchSize - 1) / t.cfg.BatchSize
}

func (t *trainer) totalSteps() int64 { return int64(t.cfg.Epochs) * int64(t.stepsPerEpoch()) }

func (t *trainer) lastEpoch() bool { return t.at.Epoch == t.cfg.Epochs-1 }

func (t *trainer) askedToStop() bool {
	select {
	case <-t.env.Stop:
		return true
	default:
		return false
	}
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

func (t *trainer) result(stopped bool) Result {
	epochs := t.at.Epoch
	if t.at.Done == t.stepsPerEpoch() {
		epochs++
	}
	return Result{
		Steps: t.at.Step, Epochs: epochs, Loss: t.at.loss(),
		Evaluated: t.evaluation.done, Accuracy: t.evaluation.accuracy, EvalLoss: t.evaluation.loss,
		Checkpoint: t.path, Stopped: stopped, Resumed: t.resumed,
	}
}
