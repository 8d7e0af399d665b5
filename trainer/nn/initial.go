package nn

import "math"

// Source is where random initial values come from. *math/rand/v2.Rand is one.
type Source interface {
	Uint32() uint32
}

// uniform fills dst with U(-bound, bound) as torch.Tensor.uniform_ does: 24 random
// bits are scaled and shifted with one rounding at the end. In float64 the product of two
// 24-bit numbers is exact, so the bits do not depend on whether the machine fuses it with the sum.
func uniform(dst []float32, bound float32, src Source) {
	width := float64(bound) * 2
	for i := range dst {
		u := float64(src.Uint32()&(1<<24-1)) / (1 << 24)
		dst[i] = float32(u*width - float64(bound))
	}
}

// fanIn fills a weight, then a bias (nil: none), for fan inputs a unit, as torch.nn.Linear and torch.nn.Conv2d do: both
// are U(-1/sqrt(fan), 1/sqrt(fan)). PyTorch writes the weight's bound as kaiming_uniform_ with a = sqrt(5),
// which is rounded differently.
func fanIn(weight, bias []float32, fan int, src Source) {
	slope := math.Sqrt(5)
	gain := math.Sqrt(2 / (1 + slope*slope))
	root := math.Sqrt(float64(fan))
	uniform(weight, float32(math.Sqrt(3)*(gain/root)), src)
	uniform(bias, float32(1/root), src)
}
