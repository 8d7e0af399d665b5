package trainer

import (
	"context"
	"errors"
	"fmt"

	"ddpbatch/checkpoint"
	"ddpbatch/checkpoint/distributed"
)

// saves is what a rank knows of its checkpoints.
type saves struct {
	saver      *distributed.Saver   // nil: there are none
	hookCopies map[string][]float32 // see savedArrays

	begunStep     int64  // the step of the newest save that was begun, or that was resumed from; -1: none
	scored        bool   // whether that holds what the evaluation after its step has found
	committedStep int64  // the step of the newest checkpoint that is known to be committed; -1: none
	path          string // of that
	uncommitted   bool   // whether begunStep is not known to be committed
	pinPending    bool   // whether begunStep is that of the best evaluation, and its checkpoint is to stay
	bestPath      string // of the checkpoint of the best evaluation, or empty

	cost     saveCost
	resuming resumeCost
}

// bestLabel marks the checkpoint of the best evaluation.
const bestLabel = "best"

// due says whether a checkpoint belongs after the steps taken since the last one.
// Where evaluations are kept, one that follows at once makes it.
func (t *trainer) due() bool {
	every := int64(t.policy.EverySteps)
	if t.policy.KeepBest && t.eval != nil && t.stepsLeft() == 0 && t.evaluatesAtEpochEnd() {
		return false
	}
	return every > 0 && t.at.Step/every > max(t.begunStep, 0)/every
}

// scores tells whether the last evaluation was of this very state.
func (t *trainer) scores() bool { return t.evaluation.done && t.evaluation.step == t.at.Step }

// covered tells whether the newest checkpoint is of this step, and has all that the policy may choose by.
func (t *trainer) covered() bool {
	return t.begunStep == t.at.Step && (t.scored || !t.policy.KeepBest || !t.scores())
}

// save begins a checkpoint of this step, unless there is one already: for one that is of the best evaluation, and is to stay, there is
// another. Where saves are asynchronous it returns once the state is copied. One that has failed behind training's back is made up for
// by this one, which is then waited for: two failures in a row end training. An error is every rank's.
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
	t.begunStep, t.scored, t.uncommitted, t.pinPending = t.at.Step, t.scores(), true, best
	if t.policy.Async {
		return nil
	}
	return t.finishSave(ctx)
}

// finishSave waits until the newest checkpoint is committed. An error is every rank's.
func (t *trainer) finishSave(ctx context.Context) error {
	if err := t.commit(ctx); err != nil {
		return fmt.Errorf("save step %d: %w", t.begunStep, err)
	}
	return nil
}

// finishEarlier is finishSave of a save that was begun before this step was over, or in which an evaluation has followed.
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
		t.log.Warn("a checkpoint was not saved, and a newer one was", "step", earlier.Step, "newer", info.Step)
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

// worthRetrying tells whether a save is worth another try: what went wrong with one before it is no reason to lose all that was done
// since. All ranks give the same answer.
func (t *trainer) worthRetrying(err error) bool {
	earlier, ok := errors.AsType[*distributed.EarlierError](err)
	if !ok || errors.Is(err, checkpoint.ErrFenced) || errors.Is(err, ErrDiverged) {
		return false
	}
	if t.env.Comm.Rank() == 0 { // whose Saver has logged why
		t.log.Warn("a checkpoint was not saved: trying once more, with what there is now", "not_saved", earlier.Step, "step", t.at.Step)
	}
	return true
}

// saveAndFinish is the last save, up to the commit, with another try where one before it has failed.
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

// evalLoss is the name of the loss on the evaluation rows among checkpointMetrics.
const evalLoss = "eval_loss"

// checkpointMetrics are what retention and people may compare checkpoints by. Those of an evaluation are of this very state.
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

// divergedInSave tells whether a checkpoint in the background held a number that is not finite: then training had gone wrong in an
// earlier step than the one that has noticed. Any other failure of it is only told.
func (t *trainer) divergedInSave(ctx context.Context) error {
	err := t.finishSave(ctx)
	if err != nil && !errors.Is(err, ErrDiverged) {
		t.log.Warn("a checkpoint was not saved", "error", err)
		return nil
	}
	return err
}
