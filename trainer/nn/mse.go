package nn

// MSE is the mean squared error over all elements, torch.nn.MSELoss. The zero value is
// ready.
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
