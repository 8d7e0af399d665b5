package shard

import (
	"encoding/binary"
	"io"

	"ddpbatch/checkpoint/internal/chunk"
	"ddpbatch/internal/crc32c"
)

// parseHeader checks the first 64 bytes of a shard by themselves. A version that this program does not know gives a
// *Newer, and nothing else is believed; any other error is a *Damage.
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

// parseTrailer checks the last 32 bytes of a shard of size bytes and so many chunks. It returns where the table
// begins, and the table's checksum.
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

// located is a chunk in a file.
type located struct {
	entry
	offset int64
}

// tablePart is how much of a chunk table is read at once. A sparse file may have a table of GiB that takes no room on disk; its first
// entry of zeros is refused before more is read.
const tablePart = 4096 * entryBytes

// readTable reads the chunk table at offset end of f, and holds it against the chunks of the plan, against want, its checksum, and
// against the end of their stored bytes. It also returns the CRC of the file up to the table's end, computed from the table alone, where
// head is that of what is before the chunks.
func readTable(f io.ReaderAt, end int64, version uint32, p *plan, want, head uint32) (chunks []located, crc uint32, err error) {
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

// parseEntry holds the entry of chunk c against the plan.
func parseEntry(b []byte, version uint32, p *plan, c int) (entry, error) {
	e := entry{
		stored: binary.LittleEndian.Uint32(b[0:]),
		crc:    binary.LittleEndian.Uint32(b[8:]),
		method: chunk.Method(b[12]),
	}
	piece, from, to := p.at(c)
	raw := int(to - from)
	if binary.LittleEndian.Uint32(b[4:]) != uint32(raw) || b[13]|b[14]|b[15] != 0 ||
		!known(e.method, version) || !e.method.Plausible(int(e.stored), raw, p.pieces[piece].Layout) {
		return e, p.blame(c, "its entry in the chunk table (% x) does not fit %d bytes", b, raw)
	}
	return e, nil
}

// known reports whether a version has a method.
func known(m chunk.Method, version uint32) bool {
	return version > 1 || m == chunk.Raw || m == chunk.Zstd
}
