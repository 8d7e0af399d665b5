package nn

import (
	"math"
	"math/bits"
)

// Source is a source of random initial values. *math/rand/v2.Rand implements it.
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

// fanIn fills a weight, then a bias (nil: none), of a unit with fan inputs, as torch.nn.Linear and torch.nn.Conv2d do: both
// from U(-1/sqrt(fan), 1/sqrt(fan)). PyTorch computes the weight's bound by kaiming_uniform_ with a = sqrt(5),
// which rounds differently.
func fanIn(weight, bias []float32, fan int, src Source) {
	slope := math.Sqrt(5)
	gain := math.Sqrt(2 / (1 + slope*slope))
	root := math.Sqrt(float64(fan))
	uniform(weight, float32(math.Sqrt(3)*(gain/root)), src)
	uniform(bias, float32(1/root), src)
}

// normal fills dst with N(0, deviation²) as torch.Tensor.normal_ does for 16 elements or more: it draws 24-bit uniform numbers
// for all of dst, then turns each 16 of them into 16 normal ones by Box and Muller's transform; if
// the length is not a multiple of 16, it draws the last 16 elements again. (PyTorch draws fewer than 16 elements in another way; here
// they are the first of 16.) PyTorch's vectorized logarithm and cosine differ from these in the last bits.
func normal(dst []float32, deviation float64, src Source) {
	const block = 16
	if len(dst) < block {
		var all [block]float32
		normal(all[:], deviation, src)
		copy(dst, all[:])
		return
	}
	uniform24(dst, src)
	whole := len(dst) / block * block
	for i := 0; i < whole; i += block {
		boxMuller(dst[i:i+block], deviation)
	}
	if whole < len(dst) {
		last := dst[len(dst)-block:]
		uniform24(last, src)
		boxMuller(last, deviation)
	}
}

// uniform24 fills dst with multiples of 2^-24 from [0, 1).
func uniform24(dst []float32, src Source) {
	for i := range dst {
		dst[i] = float32(src.Uint32()&(1<<24-1)) / (1 << 24)
	}
}

// boxMuller transforms pairs of elements, one from each half of v.
func boxMuller(v []float32, deviation float64) {
	half := len(v) / 2
	for i := range half {
		radius := deviation * math.Sqrt(-2*math.Log(1-float64(v[i])))
		sin, cos := math.Sincos(2 * math.Pi * float64(v[half+i]))
		v[i], v[half+i] = float32(radius*cos), float32(radius*sin)
	}
}

// philox is Philox4x32-10 of Salmon, Moraes, Dror and Shaw (Parallel random numbers: as easy as 1, 2, 3; SC11). It returns four random
// words that depend only on a key and a counter, so that any part of a stream can be computed independently.
// PyTorch's and JAX's generators on accelerators are of this kind.
func philox(key uint64, counter [2]uint64) [4]uint32 {
	k0, k1 := uint32(key), uint32(key>>32)
	c0, c1 := uint32(counter[0]), uint32(counter[0]>>32)
	c2, c3 := uint32(counter[1]), uint32(counter[1]>>32)
	for range 10 {
		hi0, lo0 := bits.Mul32(0xd2511f53, c0)
		hi1, lo1 := bits.Mul32(0xcd9e8d57, c2)
		c0, c1, c2, c3 = hi1^c1^k0, lo1, hi0^c3^k1, lo0
		k0 += 0x9e3779b9
		k1 += 0xbb67ae85
	}
	return [4]uint32{c0, c1, c2, c3}
}
