package shard

import (
	"encoding/binary"
	"fmt"
	"io"

	"ddpbatch/checkpoint/internal/chunk"
	"ddpbatch/internal/crc32c"
)

// Version is the format that Write writes, and the newest one that Open reads.
const Version = 2

const (
	magic    = "\x89DDP\r\n\x1a\n" // like PNG's, it reveals 7-bit and line-end conversions
	endMagic = "DDPTEND\n"

	chunkBytes   = chunk.MaxBytes // raw bytes of a chunk, at most
	headerBytes  = 64
	entryBytes   = 16
	trailerBytes = 32

	maxChunks   = 1<<32 - 1
	maxRawBytes = 1 << 49
)

// header is the first 64 bytes. Magic, version and the checksum at byte 60 have the same place in every version.
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

// chunkEntry is the entry of one chunk in the table. Its raw length follows from the pieces.
type chunkEntry struct {
	stored uint32 // bytes in the file
	crc    uint32 // of the stored bytes
	method chunk.Method
}

// append adds the entry of a chunk of raw bytes to a table.
func (e chunkEntry) append(table []byte, raw int) []byte {
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

// parseHeader checks the first 64 bytes of a shard by themselves. For an unknown version it returns a
// *Newer and does not look at the rest; any other error is a *Damage.
func parseHeader(b []byte) (header, error) {
	if string(b[:8]) != magic {
		return header{}, damaged("it begins with % x: not a shard", b[:8])
	}
	if got, want := crc32c.Checksum(b[:60]), binary.LittleEndian.Uint32(b[60:]); got != want {
		return header{}, damaged("the header's checksum is %08x, it says %08x", got, want)
	}
	h := header{
		version: binary.LittleEndian.Uint32(b[8:]),
		step:    binary.LittleEndian.Uint64(b[16:]),
		shard:   binary.LittleEndian.Uint32(b[24:]),
		shards:  binary.LittleEndian.Uint32(b[28:]),
		pieces:  binary.LittleEndian.Uint32(b[32:]),
		chunks:  binary.LittleEndian.Uint32(b[36:]),
		raw:     binary.LittleEndian.Uint64(b[40:]),
	}
	if h.version > Version {
		return h, &Newer{h.version}
	}
	if h.version < 1 {
		return h, damaged("the header's version is 0")
	}
	if binary.LittleEndian.Uint32(b[12:]) != headerBytes || binary.LittleEndian.Uint32(b[48:]) != chunkBytes ||
		binary.LittleEndian.Uint64(b[52:]) != 0 {
		return h, damaged("a constant field of the header has another value")
	}
	return h, nil
}

// parseTrailer checks the last 32 bytes of a shard that has size bytes and the given number of chunks. It returns the offset of the table,
// and the table's checksum.
func parseTrailer(b []byte, size int64, chunks int) (offset int64, crc uint32, err error) {
	if string(b[24:]) != endMagic {
		return 0, 0, damaged("it ends with % x: not the end of a shard", b[24:])
	}
	if got, want := crc32c.Checksum(b[:20]), binary.LittleEndian.Uint32(b[20:]); got != want {
		return 0, 0, damaged("the trailer's checksum is %08x, it says %08x", got, want)
	}
	at, length := binary.LittleEndian.Uint64(b[0:]), binary.LittleEndian.Uint64(b[8:])
	room := uint64(size - headerBytes - trailerBytes)
	if length != uint64(chunks)*entryBytes || length > room || at != headerBytes+room-length {
		return 0, 0, damaged("the chunk table of %d bytes at %d does not fit %d chunks in a file of %d bytes", length, at, chunks, size)
	}
	return int64(at), binary.LittleEndian.Uint32(b[16:]), nil
}

// located is a chunk and its place in a file.
type located struct {
	chunkEntry
	offset int64
}

// tablePart is how much of a chunk table is read at once. A sparse file may have a table of several GiB that takes no room on disk; its
// first entry of zeros is refused before more is read.
const tablePart = 4096 * entryBytes

// readTable reads the chunk table at offset end of f, and compares it with the chunks of the pieces, with its checksum want, and
// with the end of the stored bytes. It also returns the CRC of the file up to the end of the table, which it computes from the table alone;
// head is the CRC of what comes before the chunks.
func readTable(f io.ReaderAt, end int64, version uint32, p *chunking, want, head uint32) (chunks []located, crc uint32, err error) {
	offset, crc := int64(headerBytes), head
	var got uint32
	length := int64(p.chunks()) * entryBytes
	for at := int64(0); at < length; at += tablePart {
		part, err := readPart(f, end+at, int(min(tablePart, length-at)))
		if err != nil {
			return nil, 0, err
		}
		got = crc32c.Update(got, part)
		for ; len(part) > 0; part = part[entryBytes:] {
			e, err := parseEntry(part[:entryBytes], version, p, len(chunks))
			if err != nil {
				return nil, 0, err
			}
			chunks = append(chunks, located{e, offset})
			offset += int64(e.stored)
			crc = crc32c.Combine(crc, e.crc, int64(e.stored))
		}
	}
	switch {
	case got != want:
		return nil, 0, damaged("the chunk table's checksum is %08x, the trailer says %08x", got, want)
	case offset != end:
		return nil, 0, damaged("the chunks end at %d, the chunk table begins at %d", offset, end)
	}
	return chunks, crc32c.Combine(crc, got, length), nil
}

// parseEntry compares the entry of chunk c with the pieces.
func parseEntry(b []byte, version uint32, p *chunking, c int) (chunkEntry, error) {
	e := chunkEntry{
		stored: binary.LittleEndian.Uint32(b[0:]),
		crc:    binary.LittleEndian.Uint32(b[8:]),
		method: chunk.Method(b[12]),
	}
	piece, from, to := p.at(c)
	raw := int(to - from)
	if binary.LittleEndian.Uint32(b[4:]) != uint32(raw) || b[13]|b[14]|b[15] != 0 ||
		!known(e.method, version) || !e.method.Plausible(int(e.stored), raw, p.pieces[piece].Layout) {
		return e, p.chunkDamage(c, "its entry in the chunk table (% x) does not fit %d bytes", b, raw)
	}
	return e, nil
}

// known reports whether a version of the format has a method.
func known(m chunk.Method, version uint32) bool {
	return version > 1 || m == chunk.Raw || m == chunk.Zstd
}

// Damage says what is wrong with the bytes of a shard. Callers that know the file's name add it.
type Damage struct {
	Piece  int    // index of the damaged piece; -1 if the damage is not in a piece
	Name   string // of that piece
	Detail string // "chunk 3 of 40: its checksum is ..."
}

func (d *Damage) Error() string {
	if d.Piece < 0 {
		return d.Detail
	}
	return fmt.Sprintf("tensor %q: %s", d.Name, d.Detail)
}

// damaged returns a Damage that is not in a piece.
func damaged(format string, args ...any) *Damage {
	return &Damage{Piece: -1, Detail: fmt.Sprintf(format, args...)}
}

// Newer reports a shard of a version that this program does not know. As far as can be checked, the shard is whole.
type Newer struct{ Version uint32 }

func (n *Newer) Error() string {
	return fmt.Sprintf("the shard is of version %d, this program reads 1 to %d; use a newer program", n.Version, Version)
}
