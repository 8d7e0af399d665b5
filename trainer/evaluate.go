package trainer

import (
	"context"
	"fmt"

	"ddpbatch/mpi"
	"ddpbatch/trainer/nn"
)

// evaluation is what a model does on rows that it is not trained on.
type evaluation struct {
	done     bool
	step     int64   // after which it was
	loss     float64 // mean over the rows
	accuracy float64 // share of labels predicted right; 0 for regression
}

// evaluate goes through the evaluation rows, where there are any, each on one replica, and keeps the checkpoint of the best
// evaluation where that is asked for.
func (t *trainer) evaluate(ctx context.Context) error {
	t.at.LookDue = false
	if t.eval == nil {
		return nil
	}
	if err := t.ddp.SyncBuffers(ctx); err != nil { // those that a checkpoint would hold
		return fmt.Errorf("evaluate after step %d: %w", t.at.Step, err)
	}
	pass := nn.Pass{BLAS: t.blas}
	var loss, right float64
	batch, replicas := t.cfg.BatchSize, t.layout.replicas
	for first := t.layout.replica * batch; first < t.eval.Len(); first += replicas * batch {
		t.rows = t.rows[:0]
		for row := first; row < min(first+batch, t.eval.Len()); row++ {
			t.rows = append(t.rows, row)
		}
		t.batch.Fill(t.eval, t.rows)
		s, err := t.engine.score(ctx, &pass, &t.batch)
		if err != nil {
			return fmt.Errorf("evaluate after step %d: %w", t.at.Step, err)
		}
		loss += s.loss
		right += float64(s.right)
	}
	// Counts are exact: float64 holds whole numbers up to 2^53.
	sums := []float64{loss, right}
	if err := mpi.AllReduce(ctx, t.env.Comm, sums, mpi.Sum); err != nil {
		return fmt.Errorf("evaluate after step %d: %w", t.at.Step, err)
	}
	rows, labels := float64(t.eval.Len()), float64(t.eval.Spec().Labels)
	t.evaluation = evaluation{done: true, step: t.at.Step, loss: sums[0] / rows}
	if labels > 0 {
		t.evaluation.accuracy = sums[1] / (rows * labels)
	}
	if l := t.evaluation.loss; !finite(l) {
		return t.diverged(t.at.Step, fmt.Sprintf("the loss on the evaluation rows is %v", l))
	}
	t.writeMetrics(t.evaluation)
	return t.keepBest(ctx)
}

// keepBest saves a checkpoint that stays, if this evaluation is the best.
func (t *trainer) keepBest(ctx context.Context) error {
	value, better := t.evaluation.loss, false
	switch t.cfg.Evaluate.Best {
	case "":
		return nil
	case "accuracy":
		value = t.evaluation.accuracy
		better = value > t.at.Best.Value
	default:
		better = value < t.at.Best.Value
	}
	if t.at.Best.Last == t.at.Step {
		return nil // counted before the checkpoint that was resumed from
	}
	t.at.Best.Last = t.at.Step
	if t.at.Best.Step > 0 && !better {
		t.at.Best.Since++
		return nil
	}
	t.at.Best = best{Of: t.bestOf(), Step: t.at.Step, Value: value, Last: t.at.Step}
	if !t.plan.Save {
		return nil
	}
	if t.env.Comm.Rank() == 0 {
		t.env.Checkpoints.Pin(t.at.Step)
	}
	// One of this step may be there already, which does not know that it is the best.
	if err := t.save(ctx, true); err != nil {
		return err
	}
	t.bestPath = t.path
	return nil
}

// bestOf is what evaluations are compared by. Where a job that goes on compares by another, there is no best yet.
func (t *trainer) bestOf() string { return t.cfg.Evaluate.Best + " of " + t.cfg.Data.Eval }
