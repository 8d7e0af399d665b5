package trainer

import (
	"context"
	"time"

	"ddpbatch/mpi"
	"ddpbatch/trainer/data"
)

// run trains, saves what was done, and reports how it went.
func (t *trainer) run(ctx context.Context) (Result, error) {
	switch {
	case t.env.Comm.Rank() != 0:
	case t.at.Epoch >= t.cfg.Epochs:
		t.print("rank 0 | nothing to do: epoch %d was reached before, and epochs is %d\n", t.at.Epoch, t.cfg.Epochs)
	case t.reachedMaxSteps() && !t.at.EvalDue:
		t.print("rank 0 | nothing to do: step %d was reached before, and max_steps is %d\n", t.at.Step, t.cfg.MaxSteps)
	}
	stopped, err := t.trainEpochs(ctx)
	if err == nil {
		err = t.saveAndFinish(ctx)
	}
	if err != nil {
		return Result{}, t.elsewhere(err)
	}
	t.writeMetrics(evaluation{})
	t.reportSaves()
	result := t.result(stopped)
	if stopped {
		result.OutOfTime, err = mpi.BroadcastObject(ctx, t.env.Comm, t.outOfTime, 0)
	}
	return result, err
}

// trainEpochs trains from where setUp left off to the end of the last epoch, to max_steps, until the evaluations have stopped improving, or
// until a stop that the ranks have agreed on.
func (t *trainer) trainEpochs(ctx context.Context) (stopped bool, err error) {
	for t.at.Epoch < t.cfg.Epochs && !t.stoppedImproving() && (!t.reachedMaxSteps() || t.at.EvalDue) {
		if stopped, err := t.trainEpoch(ctx); err != nil || stopped {
			return stopped, err
		}
		if t.stepsLeft() > 0 { // the evaluations have stopped improving, or max_steps is reached
			t.reportEpoch()
			break
		}
		if stopped, err := t.endEpoch(ctx); err != nil || stopped {
			return stopped, err
		}
		if t.lastEpoch() || t.reachedMaxSteps() {
			break // stay at the epoch's end: a job with more epochs resumes from there
		}
		t.at = t.at.nextEpoch()
	}
	return false, nil
}

// trainEpoch takes the remaining steps of an epoch. stopped reports whether the ranks agreed to stop
// before the run's last step.
func (t *trainer) trainEpoch(ctx context.Context) (stopped bool, err error) {
	t.beginEpoch()
	if t.at.EvalDue && t.stepsLeft() > 0 { // an evaluation was interrupted
		if stopped, err := t.evaluate(ctx); err != nil || stopped {
			return stopped, err
		}
	}
	for t.stepsLeft() > 0 && !t.stoppedImproving() && !t.reachedMaxSteps() {
		if err := t.step(ctx); err != nil {
			return false, err
		}
		if stopped, err := t.afterStep(ctx); err != nil || stopped {
			return stopped, err
		}
		if t.sums[stopSum] > 0 && t.at.Step < t.totalSteps() {
			return true, nil
		}
		if t.inSync && t.due() {
			if err := t.save(ctx, false); err != nil {
				return false, err
			}
		}
	}
	return false, nil
}

// step trains on the next rows of every rank.
//
// The gradient is that of the mean loss of all rows of the step on all ranks. A rank that accumulates computes it in
// several passes; each is weighted by its number of rows, which may be 0.
func (t *trainer) step(ctx context.Context) error {
	start, alone := t.now(), t.stepsAlone()
	t.inputTime = 0
	rows := min(t.rowsLeft(), t.rowsPerStep())
	passes := ceil(rows, t.cfg.BatchSize*t.topology.replicas)

	t.ddp.ZeroGrad()
	if !alone {
		if err := t.ddp.SyncBuffers(ctx); err != nil {
			return inStep(t.at.Step+1, err)
		}
	}
	clear(t.sums[:])
	for i := range passes {
		b := t.nextBatch()
		t.pass.Seed = t.seedOf(i)
		t.share = float64(b.Rows) / float64(rows)
		factor := t.lossScale() * float32(t.share*float64(t.topology.replicas)) // ddp divides by the number of replicas
		t.lastPass = i == passes-1
		if err := t.engine.train(ctx, &t.pass, b, factor, t.onLoss); err != nil {
			return inStep(t.at.Step+1, err)
		}
	}
	if err := t.finishSums(ctx); err != nil {
		return inStep(t.at.Step+1, err)
	}
	// The sum is NaN if any rank's loss is, so that all ranks end here together. With local SGD they end when they average their
	// parameters.
	loss := t.sums[lossSum]
	if !finite(loss) && !alone {
		return t.explainLoss(ctx, t.at.Step+1, loss)
	}
	if err := t.update(ctx); err != nil {
		return inStep(t.at.Step+1, err)
	}
	t.at = t.at.after(rows, loss)
	took := t.now().Sub(start)
	t.measure(loss, rows, took, alone)
	t.progress(took, alone)
	t.alive()
	return nil
}

// update takes the optimizer's step, if the gradients are finite.
func (t *trainer) update(ctx context.Context) error {
	finite, err := t.unscale(ctx)
	if err != nil || !finite {
		return err
	}
	if err := t.clip(ctx); err != nil {
		return err
	}
	t.optimizer.SetLR(t.schedule.LR(t.at.Step))
	return t.optimizer.step(ctx)
}

// afterStep does what is due between two steps. stopped reports whether the ranks agreed to stop in the middle of an evaluation.
func (t *trainer) afterStep(ctx context.Context) (stopped bool, err error) {
	if err := t.averageParameters(ctx); err != nil {
		return false, inStep(t.at.Step, err)
	}
	t.quickSave = t.sums[quickSum] > 0
	if err := t.compareParameters(ctx); err != nil {
		return false, inStep(t.at.Step, err)
	}
	every := int64(t.cfg.Evaluate.EverySteps)
	due := every > 0 && t.at.Step%every == 0 || t.cfg.Evaluate.EveryEpochs > 0 && t.reachedMaxSteps()
	t.at.EvalDue = t.at.EvalDue || due && t.eval != nil
	if t.at.EvalDue && t.inSync && t.stepsLeft() > 0 {
		return t.evaluate(ctx)
	}
	return false, nil
}

// evaluatesAtEpochEnd reports whether there is an evaluation at the end of the epoch.
func (t *trainer) evaluatesAtEpochEnd() bool {
	every := t.cfg.Evaluate.EveryEpochs
	return t.at.EvalDue || every > 0 && (t.lastEpoch() || (t.at.Epoch+1)%every == 0)
}

// endEpoch evaluates, if that is due, and reports the epoch. afterStep makes the evaluations within an epoch.
func (t *trainer) endEpoch(ctx context.Context) (stopped bool, err error) {
	if t.evaluatesAtEpochEnd() {
		if stopped, err := t.evaluate(ctx); err != nil || stopped {
			return stopped, err
		}
	}
	t.reportEpoch()
	return false, nil
}

// dealEpoch distributes the rows of the epoch that have not been trained on.
func (t *trainer) dealEpoch() {
	t.dealtBefore = t.at.Rows
	t.sampler.SetEpoch(t.at.Epoch, t.at.Rows)
}

// beginEpoch distributes the rows and begins to read the first of them.
func (t *trainer) beginEpoch() {
	t.dealEpoch()
	t.loader.Begin(t.sampler.Indices(), t.cfg.BatchSize)
	t.announceEpoch()
}

// nextBatch returns this replica's rows of the next pass. It may have none, if the rows do not divide evenly and other replicas have one
// more.
func (t *trainer) nextBatch() *data.Batch {
	began := time.Now()
	if t.last = t.loader.Next(); t.last == nil {
		t.last = &t.none
	}
	t.inputTime += time.Since(began)
	return t.last
}

// rowsPerStep returns how many rows all ranks together train on in a step. The last step of an epoch may have fewer.
func (t *trainer) rowsPerStep() int {
	return t.cfg.BatchSize * t.cfg.Accumulate * t.topology.replicas
}

// rowsPerEpoch returns how many rows all ranks together get in a whole epoch.
func (t *trainer) rowsPerEpoch() int {
	rows, world := t.train.Len(), t.topology.replicas
	switch t.cfg.Data.Remainder {
	case "pad":
		return ceil(rows, world) * world
	case "drop":
		return rows / world * world
	}
	return rows
}

// rowsLeft returns how many rows of the epoch all ranks together have not been given yet.
func (t *trainer) rowsLeft() int { return t.sampler.Total() - (t.at.Rows - t.dealtBefore) }

// stepsLeft returns how many steps of the epoch are left.
func (t *trainer) stepsLeft() int { return ceil(t.rowsLeft(), t.rowsPerStep()) }

// totalSteps returns how many steps the run has, including those before a resume, which may have been with another number of ranks.
func (t *trainer) totalSteps() int64 {
	if t.at.Epoch >= t.cfg.Epochs { // a job was resumed with fewer epochs than it had done
		return t.at.Step
	}
	later := int64(t.cfg.Epochs - 1 - t.at.Epoch)
	steps := t.at.Step + int64(t.stepsLeft()) + later*int64(ceil(t.rowsPerEpoch(), t.rowsPerStep()))
	if most := int64(t.cfg.MaxSteps); most > 0 && most < steps {
		return max(most, t.at.Step) // a job may be resumed with fewer steps than it had done, too
	}
	return steps
}

func (t *trainer) lastEpoch() bool { return t.at.Epoch >= t.cfg.Epochs-1 }

// stoppedImproving reports whether the evaluations have stopped getting better.
func (t *trainer) stoppedImproving() bool {
	patience := t.cfg.Evaluate.Patience
	return patience > 0 && t.at.Best.Since >= patience
}

// reachedMaxSteps reports whether the run has taken max_steps steps.
func (t *trainer) reachedMaxSteps() bool {
	return t.cfg.MaxSteps > 0 && t.at.Step >= int64(t.cfg.MaxSteps)
}

// seedOf returns the seed of random numbers in the i-th pass of the step. It is different for every step, replica and pass.
func (t *trainer) seedOf(i int) uint64 {
	return mix(mix(mix(t.cfg.Seed, uint64(t.at.Step)), uint64(t.topology.replica)), uint64(i))
}

func (t *trainer) result(stopped bool) Result {
	epochs := t.at.Epoch
	if t.stepsLeft() == 0 {
		epochs++
	}
	e := t.evaluation
	return Result{
		Steps: t.at.Step, Epochs: epochs, Loss: t.at.loss(),
		Evaluated: e.done, Accuracy: e.accuracy, EvalLoss: e.loss,
		Checkpoint: t.path, Best: t.bestPath, Early: t.stoppedImproving(), Stopped: stopped, Resumed: t.resumed,
	}
}

func ceil(a, b int) int { return (a + b - 1) / b }
