// Package crc32c computes CRC-32C (Castagnoli, RFC 3720 appendix B.4), the checksum of checkpoints, prepared data and TensorBoard's files.
//
// The results are the same as those of hash/crc32, on every machine. On amd64 with AVX-512 and carry-less multiplication of whole vectors
// (VPCLMULQDQ) assembly folds long runs of bytes at the speed of memory; everything else uses hash/crc32. The build tag noasm omits the
// assembly. docs/adr/0012-crc32c.md says why it exists and what it gains.
//
// Functions only read their arguments, and may be called by several goroutines at once.
package crc32c
