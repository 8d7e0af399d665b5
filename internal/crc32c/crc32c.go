package crc32c

import "hash/crc32"

var table = crc32.MakeTable(crc32.Castagnoli)

// Checksum is the CRC-32C of p.
func Checksum(p []byte) uint32 { return Update(0, p) }

// Update is the checksum of bytes with the checksum crc followed by p; of nothing it is 0.
func Update(crc uint32, p []byte) uint32 { return update(crc, p) }
