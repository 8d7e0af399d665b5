package crc32c

// Combine is the checksum of bytes with checksum a followed by n bytes, not negative, with checksum b. It takes less than a microsecond,
// whatever n is.
//
// A checksum is a polynomial modulo P, and appending n bytes multiplies it by x^(8n); the conditioning of the bits before and after
// cancels out. This is crc32_combine of zlib 1.2.12 (crc32.c: multmodp, x2nmodp), for another P.
func Combine(a, b uint32, n int64) uint32 { return times(power(uint64(n), 3), a) ^ b }
