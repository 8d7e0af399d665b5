package nn

import (
	"math"

	"ddpbatch/trainer/internal/vec"
)

// CrossEntropy is the mean over rows of -log softmax(logits)[label],
// torch.nn.CrossEntropyLoss. The zero value is ready to use.
type CrossEntropy struct{ dlogits Matrix }

// Loss returns the mean, and its gradient (softmax - onehot) / rows in a buffer that is valid
// until the next call. Each row has a label in [0, logits.Cols). Loss subtracts the largest logit first,
// so that no exponential overflows, and adds up in float64. Without rows the loss is 0.
func (l *CrossEntropy) Loss(logits Matrix, labels []int) (float64, Matrix) {
	if len(labels) != logits.Rows {
		panic("nn: the number of labels differs from the number of rows")
	}
	l.dlogits.resize(logits.Rows, logits.Cols)
	if logits.Rows == 0 {
		return 0, l.dlogits
	}
	var total float64
	for i, label := range labels {
		row, grad := logits.Row(i), l.dlogits.Row(i)
		if label < 0 || label >= len(row) {
			panic("nn: label out of range")
		}
		top := vec.Max(row)
		sum := vec.ExpSum(grad, row, top)
		total += math.Log(sum) - (float64(row[label]) - float64(top))
		vec.Scale(grad, float32(1/(sum*float64(logits.Rows))))
		grad[label] -= 1 / float32(logits.Rows)
	}
	return total / float64(logits.Rows), l.dlogits
}

// Argmax returns the index of the first largest element, the class that a row of logits predicts.
// If the first element is NaN it returns 0, and it ignores other NaNs.
func Argmax(row []float32) int {
	best := 0
	for j, v := range row {
		if v > row[best] {
			best = j
		}
	}
	return best
}

// MSE is the mean squared error over all elements, torch.nn.MSELoss. The zero value is
// ready to use.
type MSE struct{ dy Matrix }

// Loss returns mean((y - target)²), and its gradient with respect to y in a buffer that is valid
// until the next call. The sum is taken in float64. Without rows the loss is 0.
func (l *MSE) Loss(y, target Matrix) (float64, Matrix) {
	sameShape(y, target)
	l.dy.resize(y.Rows, y.Cols)
	if len(y.Data) == 0 {
		return 0, l.dy
	}
	count := float64(len(y.Data))
	scale := float32(2 / count)
	var sum float64
	for i, v := range y.Data {
		d := v - target.Data[i]
		sum += float64(float64(d) * float64(d))
		l.dy.Data[i] = scale * d
	}
	return sum / count, l.dy
}
