package shard

import (
	"context"

	"ddpbatch/checkpoint/internal/chunk"
)

const (
	// batchBytes is how much raw data is encoded, and stored data read, at once. Network file systems move 1 MiB
	// in a request.
	batchBytes = 1 << 20
	// batchChunks bounds a batch of small pieces.
	batchChunks = 1024
	// gatherBelow is from where on a write of its own is cheaper than a copy.
	gatherBelow = 64 << 10
)

// batch is some chunks, one after the other, on their way to the file. It is used again and keeps its memory.
type batch struct {
	first, end int // numbers of its first chunk and of the one after its last
	raw        int64
	entries    []entry
	parts      [][]byte      // the stored bytes, in order: of buf, or of the caller's data
	buf        []byte        // its capacity is fixed while parts point into it
	ready      chan struct{} // tells the writer that the chunks are encoded
}

// reset makes b a batch of chunks from first on.
func (b *batch) reset(p *plan, first int) {
	b.first, b.end, b.raw = first, first, 0
	b.entries, b.parts, b.buf = b.entries[:0], b.parts[:0], b.buf[:0]
	for b.end < p.chunks() && b.end-first < batchChunks {
		_, start, end := p.at(b.end)
		if b.raw+end-start > batchBytes {
			break
		}
		b.raw += end - start
		b.end++
	}
}

// encode encodes the chunks of b. It reports false if ctx ended before that.
func (b *batch) encode(ctx context.Context, l *pipeline, enc *chunk.Encoder) bool {
	for c := b.first; c < b.end; c++ {
		if ctx.Err() != nil {
			return false
		}
		piece, start, end := l.plan.at(c)
		source := &l.sources[piece]
		raw, base := source.Data[start:end], []byte(nil)
		if source.Base != nil {
			base = source.Base[start:end]
		}
		stored, method := enc.Encode(raw, base, source.Layout)
		b.entries = append(b.entries, entry{stored: uint32(len(stored)), crc: checksum(stored), method: method})
		if method == chunk.Raw && len(raw) >= gatherBelow {
			b.add(raw)
		} else {
			b.add(b.keep(stored))
		}
	}
	return true
}

// keep copies stored to the end of buf, which has room: stored bytes are never more than raw ones.
func (b *batch) keep(stored []byte) []byte {
	if len(b.buf) == 0 && int64(cap(b.buf)) < b.raw {
		b.buf = make([]byte, 0, b.raw)
	}
	start := len(b.buf)
	b.buf = append(b.buf, stored...)
	return b.buf[start:]
}

// add puts more after the parts: bytes that follow the last part in memory make it longer, so that they are written
// together.
func (b *batch) add(more []byte) {
	if n := len(b.parts); n > 0 {
		last := b.parts[n-1]
		if cap(last)-len(last) >= len(more) && &last[:len(last)+1][len(last)] == &more[0] {
			b.parts[n-1] = last[:len(last)+len(more)]
			return
		}
	}
	b.parts = append(b.parts, more)
}
