package vec

import "math"

// GELU is dst = x Phi(x), Phi the normal distribution: torch.nn.GELU(approximate='none'); Hendrycks and Gimpel,
// arXiv 1606.08415. The error is at most 2e-7 max(1, |x|).
func GELU(dst, x []float32) { each2(best.gelu, dst, x) }

// GELUGrad is the gradient of GELU at x: dst = dy (Phi(x) + x phi(x)), phi the normal density. The error of the
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

// phi is the normal distribution. Erfc is exact where the result is small.
func phi(x float64) float64 { return math.Erfc(-x/math.Sqrt2) / 2 }
