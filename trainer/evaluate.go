package trainer

import (
	"context"
	"fmt"
	"math"

	"ddpbatch/mpi"
	"ddpbatch/trainer/data"
	"ddpbatch/trainer/nn"
)

// evaluation is what a model does on rows that it is not trained on.
type evaluation struct {
	done     bool
	loss     float64 // mean over the rows
	accuracy float64 // share of rows classified right; 0 for regression
}

// evaluate goes through the evaluation rows, each on one rank. Counts are exact: float64 holds
// whole numbers up to 2^53.
func (t *trainer) evaluate(ctx context.Context) (evaluation, error) {
	var loss, right float64
	batch, world := t.cfg.BatchSize, t.env.Comm.Size()
	for first := t.env.Comm.Rank() * batch; first < t.eval.Len(); first += world * batch {
		t.rows = t.rows[:0]
		for row := first; row < min(first+batch, t.eval.Len()); row++ {
			t.rows = append(t.rows, row)
		}
		t.batch.Fill(t.eval, t.rows)
		y := t.model.Forward(nn.Matrix{Rows: t.batch.Rows, Cols: t.eval.Spec().Inputs, Data: t.batch.X})
		mean, _ := t.loss(y, &t.batch)
		loss += mean * float64(t.batch.Rows)
		right += float64(countRight(y, &t.batch))
	}
	sums := []float64{loss, right}
	if err := mpi.AllReduce(ctx, t.env.Comm, sums, mpi.Sum); err != nil {
		return evaluation{}, fmt.Errorf("evaluate after epoch %d: %w", t.at.Epoch, err)
	}
	rows := float64(t.eval.Len())
	e := evaluation{done: true, loss: sums[0] / rows}
	if t.eval.Spec().Classes > 0 {
		e.accuracy = sums[1] / rows
	}
	if math.IsNaN(e.loss) || math.IsInf(e.loss, 0) {
		return e, t.diverged(t.at.Step, fmt.Sprintf("the loss on the evaluation rows is %v", e.loss))
	}
	return e, nil
}

// countRight is how many rows of logits are largest at their label.
func countRight(logits nn.Matrix, b *data.Batch) int {
	n := 0
	for i, label := range b.Labels {
		if nn.Argmax(logits.Row(i)) == label {
			n++
		}
	}
	return n
}
