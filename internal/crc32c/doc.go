// Package crc32c computes CRC-32C (Castagnoli, RFC 3720 appendix B.4), the checksum of checkpoints, prepared data and TensorBoard's files.
//
// The bits are hash/crc32's, on every machine. On amd64 with AVX-512 and carry-less multiplication of whole vectors (VPCLMULQDQ) long runs
// of bytes are folded in assembly, at the speed of memory; all else is hash/crc32. The tag noasm leaves assembly out. Why, and what it
// gains, is in docs/adr/0012-crc32c.md.
//
// Functions only read what they are given, and may be called from several goroutines.
package crc32c
