package shard

import (
	"context"
	"fmt"
	"io"

	"ddpbatch/checkpoint/internal/chunk"
	"ddpbatch/internal/crc32c"
)

// Source is a piece with its bytes. Write reads them, from several goroutines, until it returns.
type Source struct {
	Piece
	Data []byte      // of Length bytes
	From io.ReaderAt // unless nil, has the Length bytes in place of Data; each is read once, a chunk at a time
	Base []byte      // nil: stored whole. Otherwise Length bytes, and chunks may be stored as the difference from them
}

// base is the base of bytes start to end; nil where there is none.
func (s *Source) base(start, end int64) []byte {
	if s.Base == nil {
		return nil
	}
	return s.Base[start:end]
}

// WriteOptions are choices of Write. The zero value is ready.
type WriteOptions struct {
	Codec   chunk.Codec
	Workers int // goroutines that encode, at most; 0 is 1. What stays raw needs none
}

// Sum is what the manifest says of a whole file.
type Sum struct {
	Size int64
	CRC  uint32 // CRC-32C
}

// Write writes a shard to w: its header, the pieces in their order, table and trailer. It looks at ctx before each chunk
// and each batch, of up to 1 MiB, that it writes. An error of w, or of a source, stops it, and is wrapped. Arguments that do not fit each other panic.
//
// Workers encode ahead while Write's own goroutine writes, up to 1 MiB at once; chunks that are stored raw are written
// from where they lie. Where samples say that all of a batch stays raw, and with codec None, no worker is asked.
func Write(ctx context.Context, w io.Writer, h Header, pieces []Source, o WriteOptions) (Sum, error) {
	if h.Version != Version || h.Step < 0 || h.Shard < 0 || h.Shard >= h.Shards || int64(h.Shards) > 1<<32-1 || o.Workers < 0 {
		panic("shard: no such header or workers")
	}
	p := mustPlan(piecesOf(pieces))
	out := &output{w: w}
	head := h.full(p).encode()
	if err := out.write(head); err != nil {
		return Sum{}, err
	}
	crc, table := crc32c.Checksum(head), make([]byte, 0, p.chunks()*entryBytes+trailerBytes)
	err := encodeAll(ctx, p, pieces, o, func(b *batch) error {
		if err := b.write(out); err != nil {
			return err
		}
		for i, e := range b.entries {
			_, start, end := p.at(b.first + i)
			crc, table = crc32c.Combine(crc, e.crc, int64(e.stored)), e.append(table, int(end-start))
		}
		return nil
	})
	if err != nil {
		return Sum{}, err
	}
	tail := appendTrailer(table, out.size)
	if err := out.write(tail); err != nil {
		return Sum{}, err
	}
	return Sum{Size: out.size, CRC: crc32c.Combine(crc, crc32c.Checksum(tail), int64(len(tail)))}, nil
}

// piecesOf describes sources. It panics where their bytes are not as many as they say.
func piecesOf(sources []Source) []Piece {
	pieces := make([]Piece, len(sources))
	for i, s := range sources {
		if s.From == nil && int64(len(s.Data)) != s.Length || s.From != nil && s.Data != nil || s.Base != nil && int64(len(s.Base)) != s.Length {
			panic("shard: a piece's data or base has another length")
		}
		pieces[i] = s.Piece
	}
	return pieces
}

// output is the file that is being written.
type output struct {
	w    io.Writer
	size int64
}

func (o *output) write(p []byte) error {
	n, err := o.w.Write(p)
	if err == nil && n != len(p) {
		err = io.ErrShortWrite
	}
	if err != nil {
		return fmt.Errorf("write %d bytes at %d of a shard: %w", len(p), o.size, err)
	}
	o.size += int64(n)
	return nil
}
