//go:build !noasm

package crc32c

import "golang.org/x/sys/cpu"

const (
	// foldFrom is the least that the assembly takes; there it is twice as fast as hash/crc32 already.
	foldFrom = 512
	// foldAtOnce bounds how long Go cannot interrupt it: some 10 us.
	foldAtOnce = 256 << 10
	// vectorBytes is what it takes whole numbers of.
	vectorBytes = 64
)

var canFold = cpu.X86.HasSSE42 && cpu.X86.HasAVX2 && cpu.X86.HasAVX512F && cpu.X86.HasAVX512VL && cpu.X86.HasAVX512VPCLMULQDQ

func update(crc uint32, p []byte) uint32 {
	if canFold {
		crc, p = fold(crc, p)
	}
	return ahead(crc, p)
}

// fold adds to crc what pays of p, and returns the rest.
func fold(crc uint32, p []byte) (uint32, []byte) {
	for len(p) >= foldFrom {
		n := min(len(p), foldAtOnce) &^ (vectorBytes - 1)
		crc = ^foldAVX512(^crc, p[:n])
		p = p[n:]
	}
	return crc, p
}

// foldAVX512 is the register of a CRC after p, a multiple of vectorBytes and at least foldFrom.
//
// 16 bytes are a polynomial A x^64 + B: A the first 8, B the others. As many bits D further on it is worth A x^(D+64) + B x^D, which
// modulo P is the sum of two products of 64 by 32 bits: 16 bytes again, which are added to those that lie there. So eight vectors take in
// the next eight, and at last each other and their own quarters, until 16 bytes are left that have the CRC of all.
//
//go:noescape
func foldAVX512(crc uint32, p []byte) uint32

// folds are the factors x^(D+64) and x^D of A and B for each distance D in bits: of eight vectors, four, two and one, then of the first
// three quarters of a vector to its last, which stays where it is.
var folds = [8][2]uint64{factors(4096), factors(2048), factors(1024), factors(512), factors(384), factors(256), factors(128), {}}

// factors are of 32 bits in 64, reflected, so they come with an x^32 too many, and the product of reflected numbers has 127 bits, so it
// comes with an x too many.
func factors(distance uint64) [2]uint64 {
	const extra = 32 + 1
	return [2]uint64{uint64(power(distance+64-extra, 0)), uint64(power(distance-extra, 0))}
}
