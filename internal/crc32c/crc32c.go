package crc32c

import (
	"hash/crc32"
	"math/bits"
	"runtime"
)

var table = crc32.MakeTable(crc32.Castagnoli)

// Checksum returns the CRC-32C of p.
func Checksum(p []byte) uint32 { return Update(0, p) }

// Update returns the checksum of the bytes whose checksum is crc followed by p. The checksum of no bytes is 0.
func Update(crc uint32, p []byte) uint32 { return update(crc, p) }

// Combine returns the checksum of bytes with checksum a followed by n bytes with checksum b; n must not be negative. It takes less than a
// microsecond, whatever n is.
//
// A checksum is a polynomial modulo P, and appending n bytes multiplies it by x^(8n); the conditioning of the bits before and after
// cancels out. This is crc32_combine of zlib 1.2.12 (crc32.c: multmodp, x2nmodp), for another P.
func Combine(a, b uint32, n int64) uint32 { return times(power(uint64(n), 3), a) ^ b }

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

// power returns x^(n * 2^k), for k up to 3.
func power(n uint64, k int) uint32 {
	p := uint32(1 << 31)
	for ; n != 0; n &= n - 1 {
		p = times(p, squares[k+bits.TrailingZeros64(n)])
	}
	return p
}

// times returns a * b. It does not branch on the bits, which are random.
func times(a, b uint32) uint32 {
	var p uint32
	for range 32 {
		p ^= b & -(a >> 31)
		a <<= 1
		b = b>>1 ^ castagnoli&-(b&1)
	}
	return p
}

const (
	// runBytes is how many bytes hash/crc32 processes at once on amd64: three runs of 1344 bytes, side by side.
	runBytes = 3 * 1344
	// lineBytes is the size of a cache line.
	lineBytes = 64
)

// ahead is Update by hash/crc32 for bytes that may not be in any cache. A CPU does not prefetch for three runs side by side. If ahead first
// reads the lines in order, bytes from memory take less than half of the time, and bytes from the cache a fifth more.
func ahead(crc uint32, p []byte) uint32 {
	for len(p) >= runBytes {
		runtime.KeepAlive(touch(p[:runBytes]))
		crc = crc32.Update(crc, table, p[:runBytes])
		p = p[runBytes:]
	}
	return crc32.Update(crc, table, p)
}

// touch reads each cache line of p.
func touch(p []byte) (sum byte) {
	for i := 0; i < len(p); i += lineBytes {
		sum ^= p[i]
	}
	return sum
}
