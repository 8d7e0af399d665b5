package nn

import "math"

// normal fills dst with N(0, deviation²) as torch.Tensor.normal_ does for 16 elements or more: 24-bit uniform numbers are
// drawn for all of dst, then each 16 of them become 16 normal ones by Box and Muller's transform; where
// 16 does not divide the length, the last 16 elements are drawn again. (PyTorch draws fewer than 16 elements in another way; here
// they are the beginning of 16.) PyTorch's vectorized logarithm and cosine differ from these in the last bits.
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

// uniform24 fills dst with multiples of 2^-24 in [0, 1).
func uniform24(dst []float32, src Source) {
	for i := range dst {
		dst[i] = float32(src.Uint32()&(1<<24-1)) / (1 << 24)
	}
}

// boxMuller pairs the elements of the first half of v with those of the second.
func boxMuller(v []float32, deviation float64) {
	half := len(v) / 2
	for i := range half {
		radius := deviation * math.Sqrt(-2*math.Log(1-float64(v[i])))
		sin, cos := math.Sincos(2 * math.Pi * float64(v[half+i]))
		v[i], v[half+i] = float32(radius*cos), float32(radius*sin)
	}
}
