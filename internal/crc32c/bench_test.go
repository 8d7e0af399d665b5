package crc32c

import (
	"fmt"
	"hash/crc32"
	"testing"
)

// BenchmarkChecksum compares Checksum with the standard library's, and that with lines read ahead, of bytes in the cache and in no cache.
func BenchmarkChecksum(b *testing.B) {
	sides := []struct {
		name     string
		checksum func([]byte) uint32
	}{
		{"ours", Checksum},
		{"ahead", func(p []byte) uint32 { return ahead(0, p) }},
		{"standard", func(p []byte) uint32 { return crc32.Checksum(p, table) }},
	}
	for _, n := range []int{64, 512, 4 << 10, 64 << 10, 256 << 10} {
		data := make([]byte, n)
		for _, side := range sides {
			b.Run(fmt.Sprintf("cache/%d/%s", n, side.name), func(b *testing.B) { checksums(b, data, n, side.checksum) })
		}
	}
	const block = 256 << 10 // a chunk of a checkpoint
	data := make([]byte, 256<<20)
	for i := range data {
		data[i] = 1 // so that the pages are there
	}
	for _, side := range sides {
		b.Run("memory/"+side.name, func(b *testing.B) { checksums(b, data, block, side.checksum) })
	}
}

// checksums takes one of each block of data in turn.
func checksums(b *testing.B, data []byte, block int, checksum func([]byte) uint32) {
	b.SetBytes(int64(block))
	for at := 0; b.Loop(); at = (at + block) % len(data) {
		checksum(data[at : at+block])
	}
}
