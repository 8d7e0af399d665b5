package checkpoint

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// parseHeader checks the first 64 bytes of a shard by themselves. A version that this program
// does not know gives newerVersion, and nothing else is believed.
func parseHeader(b []byte) (shardHeader, error) {
	if string(b[:8]) != shardMagic {
		return shardHeader{}, fmt.Errorf("it begins with % x: not a shard", b[:8])
	}
	if got, want := checksum(crc32.Checksum(b[:60], castagnoli)), checksum(binary.LittleEndian.Uint32(b[60:])); got != want {
		return shardHeader{}, fmt.Errorf("the header's checksum is %v, it says %v", got, want)
	}
	h := shardHeader{
		version: binary.LittleEndian.Uint32(b[8:]),
		step:    binary.LittleEndian.Uint64(b[16:]),
		shard:   binary.LittleEndian.Uint32(b[24:]),
		shards:  binary.LittleEndian.Uint32(b[28:]),
		tensors: binary.LittleEndian.Uint32(b[32:]),
		chunks:  binary.LittleEndian.Uint32(b[36:]),
		raw:     binary.LittleEndian.Uint64(b[40:]),
	}
	if h.version > formatVersion {
		return h, newerVersion(h.version)
	}
	if h.version < 1 {
		return h, errors.New("the header's version is 0")
	}
	if binary.LittleEndian.Uint32(b[12:]) != headerBytes || binary.LittleEndian.Uint32(b[48:]) != chunkBytes || binary.LittleEndian.Uint64(b[52:]) != 0 {
		return h, errors.New("a constant field of the header has another value")
	}
	return h, nil
}

// parseTrailer checks the last 32 bytes of a shard of so many bytes, and returns where its table
// of so many chunks begins, and the table's checksum.
func parseTrailer(b []byte, size, chunks int64) (tableOffset int64, tableCRC uint32, err error) {
	if string(b[24:]) != trailerMagic {
		return 0, 0, fmt.Errorf("it ends with % x: not the end of a shard", b[24:])
	}
	if got, want := checksum(crc32.Checksum(b[:20], castagnoli)), checksum(binary.LittleEndian.Uint32(b[20:])); got != want {
		return 0, 0, fmt.Errorf("the trailer's checksum is %v, it says %v", got, want)
	}
	offset, length := binary.LittleEndian.Uint64(b[0:]), binary.LittleEndian.Uint64(b[8:])
	room := uint64(size - headerBytes - trailerBytes)
	if length != uint64(chunks)*entryBytes || length > room || offset != headerBytes+room-length {
		return 0, 0, fmt.Errorf("the chunk table of %d bytes at %d does not fit %d chunks in a file of %d bytes", length, offset, chunks, size)
	}
	return int64(offset), binary.LittleEndian.Uint32(b[16:]), nil
}

// parseTable reads the chunk table and holds it against the tensors, in their order, and against
// the room of stored bytes that it describes.
func parseTable(b []byte, tensors []tensorRecord, room int64) ([]chunkEntry, error) {
	table := make([]chunkEntry, 0, len(b)/entryBytes)
	for _, t := range tensors {
		for left := t.Length; left > 0; left -= chunkBytes {
			e := chunkEntry{
				stored: binary.LittleEndian.Uint32(b[0:]),
				raw:    binary.LittleEndian.Uint32(b[4:]),
				crc:    binary.LittleEndian.Uint32(b[8:]),
				codec:  b[12],
			}
			if b[13]|b[14]|b[15] != 0 || int64(e.raw) != min(left, chunkBytes) || !e.plausible() {
				return nil, fmt.Errorf("entry %d of the chunk table (% x) does not fit tensor %q", len(table), b[:entryBytes], t.Name)
			}
			room -= int64(e.stored)
			table = append(table, e)
			b = b[entryBytes:]
		}
	}
	if room != 0 {
		return nil, fmt.Errorf("the chunks take %d bytes less than there are", room)
	}
	return table, nil
}

// plausible says whether a chunk may have that codec and lengths: compressed ones are smaller.
func (e chunkEntry) plausible() bool {
	switch e.codec {
	case chunkRaw:
		return e.stored == e.raw
	case chunkZstd:
		return 0 < e.stored && e.stored < e.raw
	}
	return false
}
