package nn

import "math"

// CrossEntropy is the mean over rows of -log softmax(logits)[label],
// torch.nn.CrossEntropyLoss. The zero value is ready.
type CrossEntropy struct{ dlogits Matrix }

// Loss returns the mean, and its gradient (softmax - onehot) / rows in a buffer that is valid
// until the next call. Each row has a label in [0, logits.Cols). The largest logit is subtracted first,
// so that no exponential overflows; sums are taken in float64.
func (l *CrossEntropy) Loss(logits Matrix, labels []int) (float64, Matrix) {
	if len(labels) != logits.Rows {
		panic("nn: the number of labels is not that of rows")
	}
	l.dlogits.resize(logits.Rows, logits.Cols)
	var total float64
	for i, label := range labels {
		row, grad := logits.Row(i), l.dlogits.Row(i)
		if label < 0 || label >= len(row) {
			panic("nn: label out of range")
		}
		top := float64(row[Argmax(row)])
		var sum float64
		for j, v := range row {
			e := math.Exp(float64(v) - top)
			grad[j] = float32(e)
			sum += e
		}
		total += math.Log(sum) - (float64(row[label]) - top)
		scale := float32(1 / (sum * float64(logits.Rows)))
		for j := range grad {
			grad[j] *= scale
		}
		grad[label] -= 1 / float32(logits.Rows)
	}
	return total / float64(logits.Rows), l.dlogits
}

// Argmax returns the index of the first largest element, the class that a row of logits predicts.
// Elements that are NaN count only where the first one is.
func Argmax(row []float32) int {
	best := 0
	for j, v := range row {
		if v > row[best] {
			best = j
		}
	}
	return best
}
