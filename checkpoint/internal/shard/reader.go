package shard

import (
	"context"
	"io"

	"ddpbatch/checkpoint/internal/chunk"
	"ddpbatch/internal/crc32c"
)

// Reader reads the chunks of a shard. It is safe for concurrent use. It does not close its file, which must stay open.
type Reader struct {
	file     io.ReaderAt
	chunking *chunking
	chunks   []located
	base     *Reader // nil if no chunk may be a difference
	scratch  scratches
}

// Open checks everything in a shard except its chunks. The caller has the arguments from the manifest: size (which the caller has compared
// with the file's), the expected header, the pieces in order, and the CRC-32C of the whole file. Open retains
// pieces. Errors about the bytes are *Damage or *Newer; others come from f.
func Open(f io.ReaderAt, size int64, h Header, pieces []Piece, crc uint32) (*Reader, error) {
	p, err := newChunking(pieces)
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
	return &Reader{file: f, chunking: p, chunks: chunks}, nil
}

// IsDelta reports whether some chunk is the difference from a base and cannot be read without it.
func (r *Reader) IsDelta() bool {
	for _, c := range r.chunks {
		if c.method&chunk.Delta != 0 {
			return true
		}
	}
	return false
}

// SetBase sets the shard that the chunks of r may be differences from. It must be called before r is read, and base must stay open as long
// as r is used. SetBase returns a *Damage if base has other pieces, or has differences itself.
func (r *Reader) SetBase(base *Reader) error {
	if len(base.chunking.pieces) != len(r.chunking.pieces) {
		return damaged("the base's shard has %d pieces, this one %d", len(base.chunking.pieces), len(r.chunking.pieces))
	}
	for i, piece := range r.chunking.pieces {
		if base.chunking.pieces[i] != piece {
			return r.chunking.pieceDamage(i, "the base has another piece there")
		}
	}
	if base.IsDelta() {
		return damaged("the base's shard has chunks that are differences themselves")
	}
	r.base = base
	return nil
}

// Close frees the memory of decoders. It does not close the file. No read may be in progress.
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

// PieceStats describes how one piece is stored. It comes from the chunk table: no chunk is read.
type PieceStats struct {
	Stored   int64                  // bytes
	ByMethod map[chunk.Method]int64 // the same bytes, by method
}

// Stats describes how each piece is stored.
func (r *Reader) Stats() []PieceStats {
	all := make([]PieceStats, len(r.chunking.pieces))
	for i := range all {
		p := PieceStats{ByMethod: map[chunk.Method]int64{}}
		for _, c := range r.chunks[r.chunking.first[i]:r.chunking.first[i+1]] {
			p.Stored += int64(c.stored)
			p.ByMethod[c.method] += int64(c.stored)
		}
		all[i] = p
	}
	return all
}

// PlaneStats returns, for each piece, how many bytes the planes of its chunks take, by their codec. It reads the first bytes
// of each chunk of method Planes, up to 36, and does not compare checksums, which cover whole chunks. Errors are as those of Read.
func (r *Reader) PlaneStats(ctx context.Context) ([]map[chunk.PlaneCodec]int64, error) {
	all := make([]map[chunk.PlaneCodec]int64, len(r.chunking.pieces))
	for i, piece := range r.chunking.pieces {
		all[i] = map[chunk.PlaneCodec]int64{}
		for c := r.chunking.first[i]; c < r.chunking.first[i+1]; c++ {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			planes, err := r.planesOf(c, piece.Layout)
			if err != nil {
				return nil, err
			}
			for _, p := range planes {
				all[i][p.Codec] += int64(p.Stored)
			}
		}
	}
	return all, nil
}

// planesOf returns how the planes of chunk c are stored, or nil if it has none.
func (r *Reader) planesOf(c int, l chunk.Layout) ([]chunk.Plane, error) {
	e := r.chunks[c]
	n := e.method.HeadBytes(l)
	if n == 0 {
		return nil, nil
	}
	head := make([]byte, n) // a plausible chunk is longer
	if n, err := readFull(r.file, head, e.offset); err != nil {
		return nil, r.readFailed(c, e.offset+int64(n), err)
	}
	planes, err := e.method.ParseHead(head, int(e.stored), l)
	if err != nil {
		return nil, r.chunking.chunkDamage(c, "it does not decode: %v", err)
	}
	return planes, nil
}
