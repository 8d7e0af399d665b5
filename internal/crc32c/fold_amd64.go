//go:build !noasm

package crc32c

import "golang.org/x/sys/cpu"

const (
	// foldFrom is the least number of bytes that the assembly takes. Even for so few it is twice as fast as hash/crc32.
	foldFrom = 512
	// foldAtOnce is the largest number of bytes for one call, which Go cannot interrupt: some 10 us.
	foldAtOnce = 256 << 10
	// vectorBytes is the size of a vector; the assembly takes a multiple of it.
	vectorBytes = 64
)

var canFold = cpu.X86.HasSSE42 && cpu.X86.HasAVX2 && cpu.X86.HasAVX512F && cpu.X86.HasAVX512VL && cpu.X86.HasAVX512VPCLMULQDQ

func update(crc uint32, p []byte) uint32 {
	if canFold {
		crc, p = fold(crc, p)
	}
	return ahead(crc, p)
}

// fold adds to crc the part of p that the assembly takes, and returns the rest.
func fold(crc uint32, p []byte) (uint32, []byte) {
	for len(p) >= foldFrom {
		n := min(len(p), foldAtOnce) &^ (vectorBytes - 1)
		crc = ^foldAVX512(^crc, p[:n])
		p = p[n:]
	}
	return crc, p
}

// foldAVX512 returns the register of a CRC after p, whose length is a multiple of vectorBytes and at least foldFrom.
//
// 16 bytes are a polynomial A x^64 + B: A is the first 8 bytes, B the others. If D bits follow them, their value is A x^(D+64) + B x^D,
// which modulo P is the sum of two products of 64 by 32 bits: 16 bytes again, which are added to the 16 bytes D bits further on. So eight
// vectors are folded into the next eight, in the end into each other, and then the quarters of the last one, until 16 bytes are left that
// have the CRC of all.
//
//go:noescape
func foldAVX512(crc uint32, p []byte) uint32

// folds has the factors x^(D+64) and x^D of A and B for each distance D in bits: the distances of eight vectors, four, two and one, and
// then those from the first three quarters of a vector to its last, which is not multiplied.
var folds = [8][2]uint64{factors(4096), factors(2048), factors(1024), factors(512), factors(384), factors(256), factors(128), {}}

// factors returns the two factors for a distance. They are 32 bits in 64, reflected, which multiplies them by x^32, and the product of
// reflected numbers has 127 bits, which multiplies it by x; both are subtracted from the exponents.
func factors(distance uint64) [2]uint64 {
	const extra = 32 + 1
	return [2]uint64{uint64(power(distance+64-extra, 0)), uint64(power(distance-extra, 0))}
}
