package vec

import "math"

// Softmax is dst = exp(x) / sum(exp(x)) over one row, computed from x less its largest, so that no exponential
// overflows. A row that holds NaN or +Inf, or nothing but -Inf, becomes NaN, as in PyTorch.
func Softmax(dst, x []float32) {
	total := ExpSum(dst, x, Max(x))
	Scale(dst, float32(1/total))
}

// SoftmaxGrad is the gradient of Softmax, whose result was y: dst = y (dy - sum(y dy)).
func SoftmaxGrad(dst, y, dy []float32) {
	if len(y) != len(dst) {
		panic(badLength)
	}
	total := float32(Dot(y, dy))
	for len(dst) > piece {
		best.softmaxGrad(dst[:piece], y[:piece], dy[:piece], total)
		dst, y, dy = dst[piece:], y[piece:], dy[piece:]
	}
	best.softmaxGrad(dst, y, dy, total)
}

// ExpSum is dst = exp(x - top), and returns the sum of dst, added up in float64. top is at least the largest x. The
// relative error of an element is at most 3e-7, apart from those below 1.2e-38, which may be 0.
func ExpSum(dst, x []float32, top float32) float64 {
	if len(x) != len(dst) {
		panic(badLength)
	}
	var total float64
	for len(dst) > piece {
		total += best.expSum(dst[:piece], x[:piece], top)
		dst, x = dst[piece:], x[piece:]
	}
	return total + best.expSum(dst, x, top)
}

func expSum(dst, x []float32, top float32) float64 {
	var total float64
	for i, v := range x {
		e := float32(math.Exp(float64(v - top)))
		dst[i] = e
		total += float64(e)
	}
	return total
}

func softmaxGrad(dst, y, dy []float32, dot float32) {
	for i, v := range y {
		dst[i] = v * (dy[i] - dot)
	}
}
