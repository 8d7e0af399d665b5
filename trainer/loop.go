package trainer

import "context"

// run trains from where setUp left off to the end of the last epoch, to where nothing gets better any more, or to a stop.
func (t *trainer) run(ctx context.Context) (Result, error) {
	if t.at.Epoch >= t.cfg.Epochs && t.env.Comm.Rank() == 0 {
		t.print("rank 0 | nothing to do: epoch %d was reached before, and epochs is %d\n", t.at.Epoch, t.cfg.Epochs)
	}
	for t.at.Epoch < t.cfg.Epochs && !t.enough() {
		stopped, err := t.trainEpoch(ctx)
		if err != nil {
			return Result{}, err
		}
		if stopped {
			return t.result(true), nil
		}
		if t.stepsLeft() > 0 {
			break // enough
		}
		if err := t.endEpoch(ctx); err != nil {
			return Result{}, err
		}
		if t.lastEpoch() {
			break // at its end, from where a job with more epochs goes on
		}
		t.at = t.at.nextEpoch()
	}
	if err := t.save(ctx, false); err != nil {
		return Result{}, err
	}
	return t.result(false), nil
}

// trainEpoch takes the steps of an epoch that are left. It says whether the ranks agreed to stop
// before the run's last step; all is saved then.
func (t *trainer) trainEpoch(ctx context.Context) (stopped bool, err error) {
	t.beginEpoch()
	for t.stepsLeft() > 0 && !t.enough() {
		if err := t.step(ctx); err != nil {
			return false, err
		}
		if err := t.afterStep(ctx); err != nil {
			return false, err
		}
		stop := t.sums[stopSum] > 0 && t.at.Step < t.totalSteps()
		if t.settled && (stop || t.due()) {
			if err := t.save(ctx, false); err != nil {
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

// step trains on the next rows of every rank.
//
// The gradient is that of the mean loss of all rows of the step on all ranks. A rank has them in
// several passes where it accumulates; each counts by the rows that it has, which may be none.
func (t *trainer) step(ctx context.Context) error {
	start, alone := t.now(), t.alone()
	rows := min(t.rowsLeft(), t.rowsPerStep())
	passes := ceil(rows, t.cfg.BatchSize*t.layout.replicas)

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
		factor := t.lossScale() * float32(t.share*float64(t.layout.replicas)) // ddp divides by the replicas
		last := i == passes-1
		if err := t.engine.train(ctx, &t.pass, b, factor, t.beginner(last)); err != nil {
			return inStep(t.at.Step+1, err)
		}
	}
	if err := t.finishSums(ctx); err != nil {
		return inStep(t.at.Step+1, err)
	}
	// It is NaN if any rank's loss is, so that all ranks end here together; those that step alone do when they settle.
	loss := t.sums[lossSum]
	if !finite(loss) && !alone {
		return t.explainLoss(ctx, t.at.Step+1, loss)
	}
	if err := t.update(ctx); err != nil {
		return inStep(t.at.Step+1, err)
	}
	t.at = t.at.after(rows, loss)
	t.measure(loss, rows, t.now().Sub(start), alone)
	return nil
}

// update takes the optimizer's step, where the gradients allow one.
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

// afterStep does what belongs between two steps.
func (t *trainer) afterStep(ctx context.Context) error {
	if err := t.settle(ctx); err != nil {
		return inStep(t.at.Step, err)
	}
	if err := t.compareParameters(ctx); err != nil {
		return inStep(t.at.Step, err)
	}
	every := int64(t.cfg.Evaluate.EverySteps)
	t.at.LookDue = t.at.LookDue || every > 0 && t.at.Step%every == 0
	if t.at.LookDue && t.settled && t.stepsLeft() > 0 {
		return t.evaluate(ctx)
	}
	return nil
}

// endEpoch evaluates, where that is asked for, and tells how the epoch went.
func (t *trainer) endEpoch(ctx context.Context) error {
	every := t.cfg.Evaluate.EveryEpochs
	if t.at.LookDue || every > 0 && (t.lastEpoch() || (t.at.Epoch+1)%every == 0) {
		if err := t.evaluate(ctx); err != nil {
			return err
		}
	}
	t.reportEpoch()
	return nil
}
