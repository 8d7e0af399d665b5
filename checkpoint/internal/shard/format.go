package shard

import (
	"encoding/binary"
	"math"

	"ddpbatch/checkpoint/internal/chunk"
	"ddpbatch/internal/crc32c"
)

// Version is the format that Write writes, and the newest that Open reads.
const Version = 2

const (
	magic    = "\x89DDP\r\n\x1a\n" // as PNG's: shows up 7-bit and line-end conversions
	endMagic = "DDPTEND\n"

	chunkBytes   = chunk.MaxBytes // raw bytes of a chunk, at most
	headerBytes  = 64
	entryBytes   = 16
	trailerBytes = 32

	maxChunks   = min(1<<32-1, math.MaxInt/entryBytes) // their table is in memory
	maxRawBytes = 1 << 49
)

// header is the first 64 bytes. Magic, version and the checksum at byte 60 stay where they are in every version.
type header struct {
	version       uint32
	step          uint64
	shard, shards uint32
	pieces        uint32
	chunks        uint32
	raw           uint64
}

func (h header) encode() []byte {
	b := make([]byte, headerBytes)
	copy(b, magic)
	binary.LittleEndian.PutUint32(b[8:], h.version)
	binary.LittleEndian.PutUint32(b[12:], headerBytes)
	binary.LittleEndian.PutUint64(b[16:], h.step)
	binary.LittleEndian.PutUint32(b[24:], h.shard)
	binary.LittleEndian.PutUint32(b[28:], h.shards)
	binary.LittleEndian.PutUint32(b[32:], h.pieces)
	binary.LittleEndian.PutUint32(b[36:], h.chunks)
	binary.LittleEndian.PutUint64(b[40:], h.raw)
	binary.LittleEndian.PutUint32(b[48:], chunkBytes)
	binary.LittleEndian.PutUint32(b[60:], crc32c.Checksum(b[:60]))
	return b
}

// entry is one chunk's line in the table. Its raw length follows from the pieces.
type entry struct {
	stored uint32 // bytes in the file
	crc    uint32 // of the stored bytes
	method chunk.Method
}

// append adds the entry of a chunk of raw bytes to a table.
func (e entry) append(table []byte, raw int) []byte {
	table = binary.LittleEndian.AppendUint32(table, e.stored)
	table = binary.LittleEndian.AppendUint32(table, uint32(raw))
	table = binary.LittleEndian.AppendUint32(table, e.crc)
	return append(table, byte(e.method), 0, 0, 0)
}

// appendTrailer adds the last 32 bytes of a shard to its table, which begins at that offset of the file.
func appendTrailer(table []byte, offset int64) []byte {
	b := make([]byte, trailerBytes)
	binary.LittleEndian.PutUint64(b[0:], uint64(offset))
	binary.LittleEndian.PutUint64(b[8:], uint64(len(table)))
	binary.LittleEndian.PutUint32(b[16:], crc32c.Checksum(table))
	binary.LittleEndian.PutUint32(b[20:], crc32c.Checksum(b[:20]))
	copy(b[24:], endMagic)
	return append(table, b...)
}
