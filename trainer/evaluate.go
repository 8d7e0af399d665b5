package trainer

import (
	"context"
	"fmt"

	"ddpbatch/mpi"
	"ddpbatch/trainer/nn"
)

// evaluation is the result of a model on the evaluation rows.
type evaluation struct {
	done     bool
	step     int64   // the step after which it was made
	loss     float64 // mean over the rows
	accuracy float64 // share of labels predicted right; 0 for regression
}

// evaluate scores the evaluation rows, if there are any, each on one replica, and keeps the checkpoint of the best
// evaluation if that is configured. If the ranks agree to stop before it is complete, it is discarded and due again.
func (t *trainer) evaluate(ctx context.Context) (stopped bool, err error) {
	t.at.EvalDue = false
	if t.eval == nil {
		return false, nil
	}
	sums, stopped, err := t.scoreRows(ctx)
	if err != nil {
		return false, fmt.Errorf("evaluate after step %d: %w", t.at.Step, err)
	}
	if stopped {
		t.at.EvalDue = true
		return true, nil
	}
	rows, labels := float64(t.eval.Len()), float64(t.eval.Spec().Labels)
	t.evaluation = evaluation{done: true, step: t.at.Step, loss: sums[0] / rows}
	if labels > 0 {
		t.evaluation.accuracy = sums[1] / (rows * labels)
	}
	if l := t.evaluation.loss; !finite(l) {
		if err := t.divergedInSave(ctx); err != nil {
			return false, err
		}
		return false, t.diverged(t.at.Step, fmt.Sprintf("the loss on the evaluation rows is %v", l))
	}
	t.writeMetrics(t.evaluation)
	if err := t.keepBest(ctx); err != nil || !t.policy.KeepBest {
		return false, err
	}
	return false, t.save(ctx, false) // for the policy to choose from
}

// scoreRows adds up, over all ranks, the losses of the evaluation rows and the labels predicted right.
func (t *trainer) scoreRows(ctx context.Context) (sums []float64, stopped bool, err error) {
	if err := t.ddp.SyncBuffers(ctx); err != nil { // use those that a checkpoint would hold
		return nil, false, err
	}
	pass := nn.Pass{BLAS: t.blas}
	batch, replicas := t.cfg.BatchSize, t.topology.replicas
	rounds, ask := ceil(t.eval.Len(), replicas*batch), t.newStopPoll()
	sums = make([]float64, 2) // counts are exact: float64 holds whole numbers up to 2^53
	for round := range rounds {
		if first := (round*replicas + t.topology.replica) * batch; first < t.eval.Len() {
			t.rows = t.rows[:0]
			for row := first; row < min(first+batch, t.eval.Len()); row++ {
				t.rows = append(t.rows, row)
			}
			t.batch.Fill(t.eval, t.rows)
			s, err := t.engine.score(ctx, &pass, &t.batch)
			if err != nil {
				return nil, false, err
			}
			sums[0] += s.loss
			sums[1] += float64(s.right)
		}
		t.alive()
		if left := rounds - 1 - round; left > 0 {
			if stopped, err := ask.after(ctx, round+1); err != nil || stopped {
				return nil, stopped, err
			}
		}
	}
	return sums, false, mpi.AllReduce(ctx, t.env.Comm, sums, mpi.Sum)
}

// keepBest saves a checkpoint that is pinned, if this evaluation is the best.
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
		return nil // counted before the checkpoint that this attempt resumed from
	}
	t.at.Best.Last = t.at.Step
	if t.at.Best.Step > 0 && !better {
		t.at.Best.Since++
		return nil
	}
	t.at.Best = best{Of: t.bestOf(), Step: t.at.Step, Value: value, Last: t.at.Step}
	return t.save(ctx, true) // an existing checkpoint of this step does not record that it is the best
}

// bestOf returns what evaluations are compared by. If a resumed job compares by something else, there is no best yet.
func (t *trainer) bestOf() string { return t.cfg.Evaluate.Best + " of " + t.cfg.Data.Eval }
