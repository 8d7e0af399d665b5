package crc32c

import "math/bits"

// Polynomials over GF(2), modulo P, are reflected as CRCs are: bit 31 is the coefficient of x^0.

// castagnoli is P without its x^32 (RFC 3720, 12.1).
const castagnoli = 0x82f63b78

// squares[k] is x^(2^k).
var squares = func() (s [64 + 3]uint32) {
	s[0] = 1 << (31 - 1)
	for k := 1; k < len(s); k++ {
		s[k] = times(s[k-1], s[k-1])
	}
	return s
}()

// power is x^(n * 2^k), for k up to 3.
func power(n uint64, k int) uint32 {
	p := uint32(1 << 31)
	for ; n != 0; n &= n - 1 {
		p = times(p, squares[k+bits.TrailingZeros64(n)])
	}
	return p
}

// times is a * b. It has no branch on the bits, which are random.
func times(a, b uint32) uint32 {
	var p uint32
	for range 32 {
		p ^= b & -(a >> 31)
		a <<= 1
		b = b>>1 ^ castagnoli&-(b&1)
	}
	return p
}
