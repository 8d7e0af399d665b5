package vec

import "math"

// ReLU computes dst = max(x, 0). NaN stays NaN, and -0 stays -0.
func ReLU(dst, x []float32) { each2(best.relu, dst, x) }

// ReLUGrad computes the gradient of ReLU, whose result was y: dy where y > 0, and 0 elsewhere. At 0 it is 0, as in PyTorch.
func ReLUGrad(dst, y, dy []float32) { each3(best.reluGrad, dst, y, dy) }

func relu(dst, x []float32) {
	for i, v := range x {
		if v < 0 {
			v = 0
		}
		dst[i] = v
	}
}

func reluGrad(dst, y, dy []float32) {
	for i, v := range dy {
		if !(y[i] > 0) {
			v = 0
		}
		dst[i] = v
	}
}

// Tanh computes dst = tanh(x). The relative error is at most 4e-7.
func Tanh(dst, x []float32) { each2(best.tanh, dst, x) }

// TanhGrad computes the gradient of Tanh, whose result was y: dst = dy (1 - y^2).
func TanhGrad(dst, y, dy []float32) { each3(best.tanhGrad, dst, y, dy) }

func tanh(dst, x []float32) {
	for i, v := range x {
		dst[i] = float32(math.Tanh(float64(v)))
	}
}

func tanhGrad(dst, y, dy []float32) {
	for i, v := range y {
		dst[i] = dy[i] * (1 - float32(v*v))
	}
}

// GELU computes dst = x Phi(x), with Phi the normal distribution function: torch.nn.GELU(approximate='none'); Hendrycks and Gimpel,
// arXiv 1606.08415. The error is at most 2e-7 max(1, |x|).
func GELU(dst, x []float32) { each2(best.gelu, dst, x) }

// GELUGrad computes the gradient of GELU at x: dst = dy (Phi(x) + x phi(x)), with phi the normal density. The error of the
// factor of dy is at most 4e-7.
func GELUGrad(dst, x, dy []float32) { each3(best.geluGrad, dst, x, dy) }

func gelu(dst, x []float32) {
	for i, v := range x {
		v := float64(v)
		dst[i] = float32(v * phi(v))
	}
}

func geluGrad(dst, x, dy []float32) {
	density := 1 / math.Sqrt(2*math.Pi)
	for i, d := range dy {
		v := float64(x[i])
		dst[i] = float32(float64(d) * (phi(v) + v*density*math.Exp(-v*v/2)))
	}
}

// phi returns the normal distribution function. Erfc is exact where the result is small.
func phi(x float64) float64 { return math.Erfc(-x/math.Sqrt2) / 2 }

// Softmax computes dst = exp(x) / sum(exp(x)) over one row. It subtracts the largest element of x first, so that no exponential
// overflows. A row that holds NaN or +Inf, or only -Inf, becomes NaN, as in PyTorch.
func Softmax(dst, x []float32) {
	total := ExpSum(dst, x, Max(x))
	Scale(dst, float32(1/total))
}

// SoftmaxGrad computes the gradient of Softmax, whose result was y: dst = y (dy - sum(y dy)).
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

// ExpSum computes dst = exp(x - top), and returns the sum of dst, added up in float64. top must be at least the largest x. The
// relative error of an element is at most 3e-7, except that elements below 1.2e-38 may be 0.
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

// Normalize computes the layer norm of one row, torch.nn.functional.layer_norm: dst = (x - mean) rstd gain + bias, with
// rstd = 1 / sqrt(variance + eps); the variance is the sum of squares divided by len(x). It returns mean and
// rstd for the gradient. The row must not be empty.
func Normalize(dst, x, gain, bias []float32, eps float32) (mean, rstd float32) {
	n := len(x)
	if len(dst) != n || n == 0 || len(gain) != n || len(bias) != n {
		panic(badLength)
	}
	total, squares := best.moments(x)
	shift := total / float64(n)
	variance := max(squares/float64(n)-shift*shift, 0)
	mean = float32(float64(x[0]) + shift)
	rstd = float32(1 / math.Sqrt(variance+float64(eps)))
	best.normalize(dst, x, gain, bias, mean, rstd)
	return mean, rstd
}

// NormalizeGrad computes the gradient of Normalize at the row x, from that of its result, dy: it sets dx and adds to dgain
// and dbias. dx may be x or dy.
func NormalizeGrad(dx, dgain, dbias, x, dy, gain []float32, mean, rstd float32) {
	n := len(x)
	if len(dx) != n || len(dy) != n || n == 0 || len(gain) != n || len(dgain) != n || len(dbias) != n {
		panic(badLength)
	}
	total, dot := best.normalizeSums(dgain, dbias, x, dy, gain, mean, rstd)
	best.normalizeGrad(dx, x, dy, gain, mean, rstd, float32(total/float64(n)), float32(dot/float64(n)))
}

// moments needs one pass, and is exact to about n float64 roundings: the squares about x[0] are at most n + 1
// times those about the mean, because x[0] is among them, so little is lost when the mean's square is subtracted.
func moments(x []float32) (total, squares float64) {
	first := float64(x[0])
	for _, v := range x {
		d := float64(v) - first
		total += d
		squares += d * d
	}
	return total, squares
}

func normalize(dst, x, gain, bias []float32, mean, rstd float32) {
	for i, v := range x {
		unit := (v - mean) * rstd
		dst[i] = float32(unit*gain[i]) + bias[i]
	}
}

// normalizeSums adds to dgain and dbias, and returns the sums of dy gain and of dy gain (x - mean) rstd.
func normalizeSums(dgain, dbias, x, dy, gain []float32, mean, rstd float32) (total, dot float64) {
	for i, d := range dy {
		unit := (x[i] - mean) * rstd
		dgain[i] += float32(d * unit)
		dbias[i] += d
		d *= gain[i]
		total += float64(d)
		dot += float64(d) * float64(unit)
	}
	return total, dot
}

// normalizeGrad computes dx = rstd (dy gain - a - (x - mean) rstd b).
func normalizeGrad(dx, x, dy, gain []float32, mean, rstd, a, b float32) {
	for i, d := range dy {
		unit := (x[i] - mean) * rstd
		dx[i] = rstd * (float32(d*gain[i]) - a - float32(unit*b))
	}
}
