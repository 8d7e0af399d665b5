package trainer

import (
	"context"
	"errors"
	"fmt"

	"ddpbatch/checkpoint"
	"ddpbatch/checkpoint/distributed"
)

// saves is what a rank knows about its checkpoints.
type saves struct {
	saver      *distributed.Saver   // nil: no checkpoints
	hookCopies map[string][]float32 // see savedArrays

	begunStep     int64  // the step of the newest save that was begun, or that was resumed from; -1: none
	scored        bool   // whether that save has the results of the evaluation after its step
	evalDue       bool   // whether that save is the one that was resumed from, and says that an evaluation is due
	committedStep int64  // the step of the newest checkpoint that is known to be committed; -1: none
	path          string // of that checkpoint
	uncommitted   bool   // whether begunStep is not known to be committed
	pinPending    bool   // whether begunStep is that of the best evaluation, and its checkpoint is to be pinned
	bestPath      string // of the checkpoint of the best evaluation, or empty

	cost     saveCost
	resuming resumeCost
}

// bestLabel marks the checkpoint of the best evaluation.
const bestLabel = "best"

// due reports whether a checkpoint is due after the steps taken since the last one.
// If evaluations are kept and one follows at once, the evaluation saves instead.
func (t *trainer) due() bool {
	every := int64(t.policy.EverySteps)
	if t.policy.KeepBest && t.eval != nil && t.stepsLeft() == 0 && t.evaluatesAtEpochEnd() {
		return false
	}
	return every > 0 && t.at.Step/every > max(t.begunStep, 0)/every
}

// scores reports whether the last evaluation was of the present state.
func (t *trainer) scores() bool { return t.evaluation.done && t.evaluation.step == t.at.Step }

// covered reports whether the newest checkpoint is of this step, has all metrics that the policy may choose by, and is not older than the
// evaluation that this attempt was resumed for.
func (t *trainer) covered() bool {
	return t.begunStep == t.at.Step && (!t.evalDue || t.at.EvalDue) && (t.scored || !t.policy.KeepBest || !t.scores())
}

// save begins a checkpoint of this step, unless there is one already; for the best evaluation, whose checkpoint is pinned, it makes another
// one. With asynchronous saving it returns once the state is copied. If an earlier save has failed in the background, save tries once more
// with the present state and waits for the result: two failures in a row end training. An error is returned on every rank.
func (t *trainer) save(ctx context.Context, best bool) error {
	err := t.saveOnce(ctx, best)
	if !t.worthRetrying(err) {
		return err
	}
	if err := t.saveOnce(ctx, best); err != nil {
		return err
	}
	return t.finishSave(ctx)
}

func (t *trainer) saveOnce(ctx context.Context, best bool) error {
	if t.saver == nil || t.covered() && !best {
		return nil
	}
	if t.pinPending {
		if err := t.finishEarlier(ctx); err != nil {
			return err
		}
	}
	values, err := t.values()
	if err != nil {
		return err
	}
	t.copyHookState()
	start := t.now()
	err = t.saver.Save(ctx, distributed.Meta{Step: t.at.Step, Values: values, Metrics: t.checkpointMetrics(), Quick: t.quick()})
	t.cost.add(t.at.Step, start, t.now(), t.saver.Stats())
	t.warnOfStall()
	if err != nil {
		t.uncommitted = false
		return err
	}
	t.begunStep, t.evalDue, t.scored, t.uncommitted, t.pinPending = t.at.Step, false, t.scores(), true, best
	if t.policy.Async {
		return nil
	}
	return t.finishSave(ctx)
}

// finishSave waits until the newest checkpoint is committed. An error is returned on every rank.
func (t *trainer) finishSave(ctx context.Context) error {
	if err := t.commit(ctx); err != nil {
		return fmt.Errorf("save step %d: %w", t.begunStep, err)
	}
	return nil
}

// finishEarlier is finishSave for a save that was begun in an earlier step, or before an evaluation of this step.
func (t *trainer) finishEarlier(ctx context.Context) error {
	if err := t.commit(ctx); err != nil {
		step := t.begunStep
		t.begunStep, t.pinPending = -1, false
		return &distributed.EarlierError{Step: step, Err: err}
	}
	return nil
}

func (t *trainer) commit(ctx context.Context) error {
	if !t.uncommitted {
		return nil
	}
	t.uncommitted = false
	info, err := t.saver.Wait(ctx)
	if earlier, ok := errors.AsType[*distributed.EarlierError](err); ok && info.Step == t.begunStep {
		t.log.Warn("a checkpoint was not saved, but a newer one was", "step", earlier.Step, "newer", info.Step)
	} else if err != nil {
		return err
	}
	t.committedStep, t.path = info.Step, info.Path
	if !t.pinPending {
		return nil
	}
	t.pinPending, t.bestPath = false, info.Path
	return t.pin(ctx, info.Step)
}

// worthRetrying reports whether a save should be tried again: the failure of an earlier save is not a reason to lose what was done
// since. It returns the same on all ranks.
func (t *trainer) worthRetrying(err error) bool {
	earlier, ok := errors.AsType[*distributed.EarlierError](err)
	if !ok || errors.Is(err, checkpoint.ErrFenced) || errors.Is(err, ErrDiverged) {
		return false
	}
	if t.env.Comm.Rank() == 0 { // its Saver has logged the cause
		t.log.Warn("a checkpoint was not saved: trying once more, with the present state", "not_saved", earlier.Step, "step", t.at.Step)
	}
	return true
}

// saveAndFinish makes the last save and waits for the commit. It tries again if an earlier save has failed.
func (t *trainer) saveAndFinish(ctx context.Context) error {
	err := t.saveLast(ctx)
	if t.worthRetrying(err) {
		return t.saveLast(ctx)
	}
	return err
}

func (t *trainer) saveLast(ctx context.Context) error {
	if t.covered() {
		return t.finishEarlier(ctx)
	}
	if err := t.saveOnce(ctx, false); err != nil {
		return err
	}
	return t.finishSave(ctx)
}

// evalLoss is the name of the evaluation loss in checkpointMetrics.
const evalLoss = "eval_loss"

// checkpointMetrics returns what retention and people may compare checkpoints by. It includes an evaluation only if it is of the present
// state.
func (t *trainer) checkpointMetrics() map[string]float64 {
	all := map[string]float64{}
	if t.at.Done > 0 {
		all["loss"] = t.at.loss()
	}
	if e := t.evaluation; t.scores() {
		all[evalLoss] = e.loss
		if t.eval.Spec().Classes > 0 {
			all["eval_accuracy"] = e.accuracy
		}
	}
	return all
}

// divergedInSave returns ErrDiverged if a checkpoint in the background held a number that is not finite: then training diverged in an
// earlier step than the one that has noticed. Any other failure of it is only logged.
func (t *trainer) divergedInSave(ctx context.Context) error {
	err := t.finishSave(ctx)
	if err != nil && !errors.Is(err, ErrDiverged) {
		t.log.Warn("a checkpoint was not saved", "error", err)
		return nil
	}
	return err
}
