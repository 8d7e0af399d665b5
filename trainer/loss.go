package trainer

import (
	"ddpbatch/trainer/data"
	"ddpbatch/trainer/nn"
)

// lossFunc returns the mean loss of outputs y for the rows of b, and its gradient.
type lossFunc func(y nn.Matrix, b *data.Batch) (float64, nn.Matrix)

func newLoss(name string) lossFunc {
	if name == "mse" {
		var mse nn.MSE
		return func(y nn.Matrix, b *data.Batch) (float64, nn.Matrix) {
			return mse.Loss(y, nn.Matrix{Rows: y.Rows, Cols: y.Cols, Data: b.Y})
		}
	}
	var entropy nn.CrossEntropy
	return func(y nn.Matrix, b *data.Batch) (float64, nn.Matrix) {
		return entropy.Loss(y, b.Labels)
	}
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
