package shard

import "math/bits"

// The CRC of two strings one after the other follows from their CRCs and the second one's length. A CRC is a
// polynomial over GF(2) modulo P, and appending n bytes multiplies it by x^(8n); the conditioning of the bits before
// and after cancels out. This is crc32_combine of zlib 1.2.12 (crc32.c: multmodp, x2nmodp), for another P. As there,
// polynomials are reflected: bit 31 is the coefficient of x^0.

// castagnoliPoly is P without its x^32 (RFC 3720, 12.1), reflected.
const castagnoliPoly = 0x82f63b78

// squares[k] is x^(8 * 2^k) mod P.
var squares = func() (s [63]uint32) {
	s[0] = 1 << (31 - 8)
	for k := 1; k < len(s); k++ {
		s[k] = times(s[k-1], s[k-1])
	}
	return s
}()

// combine is the CRC-32C of a string with checksum a followed by one of n bytes with checksum b.
func combine(a, b uint32, n int64) uint32 { return times(shift(n), a) ^ b }

// shift is x^(8n) mod P.
func shift(n int64) uint32 {
	p := uint32(1 << 31)
	for left := uint64(n); left != 0; left &= left - 1 {
		k := bits.TrailingZeros64(left)
		p = times(p, squares[k])
	}
	return p
}

// times is a * b mod P. It has no branch on the bits, which are random.
func times(a, b uint32) uint32 {
	var p uint32
	for range 32 {
		p ^= b & -(a >> 31)
		a <<= 1
		b = b>>1 ^ castagnoliPoly&-(b&1)
	}
	return p
}
