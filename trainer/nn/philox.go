package nn

import "math/bits"

// philox is Philox4x32-10 of Salmon, Moraes, Dror and Shaw (Parallel random numbers: as easy as 1, 2, 3; SC11): four random words
// that are a function of a key and a counter alone, so that any part of a stream can be drawn at any time, by anyone.
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
