package checkpoint

import (
	"encoding/binary"
	"hash/crc32"
)

// A shard file is a header, the chunks back to back, the chunk table and a trailer. Each tensor is
// cut into chunks by itself, so that damage has a tensor's name and a reader can take one tensor
// alone. docs/format.md gives every byte.
const (
	shardMagic   = "\x89DDP\r\n\x1a\n" // as PNG's: shows up 7-bit and line-end conversions
	trailerMagic = "DDPTEND\n"

	chunkBytes   = 256 << 10 // raw bytes of a chunk, at most
	headerBytes  = 64
	entryBytes   = 16
	trailerBytes = 32

	// maxRawBytes keeps the number of chunks in 32 bits.
	maxRawBytes = 1 << 49
)

// shardHeader is the first 64 bytes. Magic, version and the checksum at byte 60 stay where they
// are in every version.
type shardHeader struct {
	version uint32
	step    uint64
	shard   uint32
	shards  uint32
	tensors uint32
	chunks  uint32
	raw     uint64
}

func (h shardHeader) encode() []byte {
	b := make([]byte, headerBytes)
	copy(b, shardMagic)
	binary.LittleEndian.PutUint32(b[8:], h.version)
	binary.LittleEndian.PutUint32(b[12:], headerBytes)
	binary.LittleEndian.PutUint64(b[16:], h.step)
	binary.LittleEndian.PutUint32(b[24:], h.shard)
	binary.LittleEndian.PutUint32(b[28:], h.shards)
	binary.LittleEndian.PutUint32(b[32:], h.tensors)
	binary.LittleEndian.PutUint32(b[36:], h.chunks)
	binary.LittleEndian.PutUint64(b[40:], h.raw)
	binary.LittleEndian.PutUint32(b[48:], chunkBytes)
	binary.LittleEndian.PutUint32(b[60:], crc32.Checksum(b[:60], castagnoli))
	return b
}

// chunkEntry describes one chunk: 16 bytes of the chunk table.
type chunkEntry struct {
	stored uint32 // bytes in the file
	raw    uint32 // bytes once decoded
	crc    uint32 // CRC-32C of the stored bytes
	codec  byte   // chunkRaw or chunkZstd
}

func (e chunkEntry) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, e.stored)
	b = binary.LittleEndian.AppendUint32(b, e.raw)
	b = binary.LittleEndian.AppendUint32(b, e.crc)
	return append(b, e.codec, 0, 0, 0)
}

// encodeTrailer gives the last 32 bytes of a shard.
func encodeTrailer(tableOffset, tableLength int64, tableCRC uint32) []byte {
	b := make([]byte, trailerBytes)
	binary.LittleEndian.PutUint64(b[0:], uint64(tableOffset))
	binary.LittleEndian.PutUint64(b[8:], uint64(tableLength))
	binary.LittleEndian.PutUint32(b[16:], tableCRC)
	binary.LittleEndian.PutUint32(b[20:], crc32.Checksum(b[:20], castagnoli))
	copy(b[24:], trailerMagic)
	return b
}

// chunkCount is the number of chunks of a tensor of so many bytes.
func chunkCount(length int64) int64 { return (length + chunkBytes - 1) / chunkBytes }
