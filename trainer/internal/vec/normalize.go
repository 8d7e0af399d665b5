package vec

import "math"

// Normalize is the layer norm of one row, torch.nn.functional.layer_norm: dst = (x - mean) rstd gain + bias, with
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

// NormalizeGrad is the gradient of Normalize at the row x, from that of its result, dy: it sets dx and adds to dgain
// and dbias. dx may be x or dy.
func NormalizeGrad(dx, dgain, dbias, x, dy, gain []float32, mean, rstd float32) {
	n := len(x)
	if len(dx) != n || len(dy) != n || n == 0 || len(gain) != n || len(dgain) != n || len(dbias) != n {
		panic(badLength)
	}
	total, dot := best.normalizeSums(dgain, dbias, x, dy, gain, mean, rstd)
	best.normalizeGrad(dx, x, dy, gain, mean, rstd, float32(total/float64(n)), float32(dot/float64(n)))
}

// moments needs one pass, and still is exact to some n float64 roundings: the squares about x[0] are at most n + 1
// times those about the mean, as x[0] is among them, so little is lost when the mean's square is subtracted.
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

// normalizeGrad is dx = rstd (dy gain - a - (x - mean) rstd b).
func normalizeGrad(dx, x, dy, gain []float32, mean, rstd, a, b float32) {
	for i, d := range dy {
		unit := (x[i] - mean) * rstd
		dx[i] = rstd * (float32(d*gain[i]) - a - float32(unit*b))
	}
}
