package shard

import (
	"io"

	"ddpbatch/checkpoint/internal/chunk"
	"ddpbatch/internal/crc32c"
)

// Reader reads the chunks of a shard. Several goroutines may use it at once. It neither closes nor outlives its file.
type Reader struct {
	file    io.ReaderAt
	plan    *plan
	chunks  []located
	base    *Reader // nil: no chunk may be a difference
	scratch scratches
}

// Open checks everything of a shard but its chunks. The caller has it from the manifest: size (which he has compared
// with the file's), what the header must say, the pieces in order, and the CRC-32C of the whole file. It keeps
// pieces. Errors about bytes are *Damage or *Newer; others come from f.
func Open(f io.ReaderAt, size int64, h Header, pieces []Piece, crc uint32) (*Reader, error) {
	p, err := newPlan(pieces)
	if err != nil {
		return nil, err
	}
	if size < headerBytes+trailerBytes {
		return nil, damaged("it has %d bytes: too short for a shard", size)
	}
	head, err := readPart(f, 0, headerBytes)
	if err != nil {
		return nil, err
	}
	got, err := parseHeader(head)
	if err != nil {
		return nil, err
	}
	if want := h.full(p); got != want {
		return nil, damaged("its header is %+v, the manifest asks for %+v", got, want)
	}
	trailer, err := readPart(f, size-trailerBytes, trailerBytes)
	if err != nil {
		return nil, err
	}
	end, tableCRC, err := parseTrailer(trailer, size, p.chunks())
	if err != nil {
		return nil, err
	}
	chunks, sum, err := readTable(f, end, got.version, p, tableCRC, crc32c.Checksum(head))
	if err != nil {
		return nil, err
	}
	if sum = crc32c.Combine(sum, crc32c.Checksum(trailer), trailerBytes); sum != crc {
		return nil, damaged("the file's checksum, by its chunk table, is %08x, the manifest says %08x", sum, crc)
	}
	return &Reader{file: f, plan: p, chunks: chunks}, nil
}

// IsDelta reports whether some chunk is the difference from a base, without which it cannot be read.
func (r *Reader) IsDelta() bool {
	for _, c := range r.chunks {
		if c.method&chunk.Delta != 0 {
			return true
		}
	}
	return false
}

// SetBase gives r, before it is read, the shard that its chunks may be differences from, which must stay open as long.
// A base with other pieces, or with differences of its own, is a *Damage.
func (r *Reader) SetBase(base *Reader) error {
	if len(base.plan.pieces) != len(r.plan.pieces) {
		return damaged("the base's shard has %d pieces, this one %d", len(base.plan.pieces), len(r.plan.pieces))
	}
	for i, piece := range r.plan.pieces {
		if base.plan.pieces[i] != piece {
			return r.plan.damage(i, "the base has another piece there")
		}
	}
	if base.IsDelta() {
		return damaged("the base's shard has chunks that are differences themselves")
	}
	r.base = base
	return nil
}

// Close frees what decoders keep; the file is the caller's. Nothing may be reading.
func (r *Reader) Close() { r.scratch.close() }

func readPart(f io.ReaderAt, offset int64, n int) ([]byte, error) {
	b := make([]byte, n)
	if n, err := readFull(f, b, offset); err == io.EOF {
		return nil, damaged("it ends at byte %d", offset+int64(n))
	} else if err != nil {
		return nil, err
	}
	return b, nil
}
