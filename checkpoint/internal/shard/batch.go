package shard

import (
	"context"
	"fmt"
	"io"

	"ddpbatch/checkpoint/internal/chunk"
	"ddpbatch/internal/crc32c"
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
	entries    []chunkEntry
	spans      []writeSpan   // the stored bytes, in order
	buf        []byte        // its capacity is fixed while spans point into it
	in         []byte        // what was read of sources that are not in memory; likewise
	err        error         // why not all chunks are encoded; nil: they are
	ready      chan struct{} // tells the writer that encode is over; has a place
}

// writeSpan is what is written at once: chunks of buf, or neighbours that are written as they lie in the source's memory. Checksums of
// these are taken when they have been written: then they are in the cache, and memory is read once.
type writeSpan struct {
	data     []byte
	piece    int // that all of it is of; -1: it is of buf
	first    int // of entries: the first that has no checksum yet
	unsummed int // how many have none
}

// write writes the chunks, and completes their entries.
func (b *batch) write(out *output) error {
	for _, p := range b.spans {
		if err := out.write(p.data); err != nil {
			return err
		}
		data := p.data
		for i := range p.unsummed {
			e := &b.entries[p.first+i]
			e.crc, data = crc32c.Checksum(data[:e.stored]), data[e.stored:]
		}
	}
	return nil
}

// reset makes b a batch of chunks from first on.
func (b *batch) reset(p *chunking, first int) {
	b.first, b.end, b.raw = first, first, 0
	b.entries, b.spans, b.buf, b.in, b.err = b.entries[:0], b.spans[:0], b.buf[:0], b.in[:0], nil
	for b.end < p.chunks() && b.end-first < batchChunks {
		_, start, end := p.at(b.end)
		if b.raw+end-start > batchBytes {
			break
		}
		b.raw += end - start
		b.end++
	}
}

// staysRaw reports whether enc leaves every chunk of b raw, for no more than the samples. Where not all are in memory it does not look.
func (b *batch) staysRaw(p *chunking, sources []Source, enc *chunk.Encoder) bool {
	for c := b.first; c < b.end; c++ {
		piece, start, end := p.at(c)
		s := &sources[piece]
		if s.From != nil || !enc.LeavesRaw(s.Data[start:end], s.base(start, end), s.Layout) {
			return false
		}
	}
	return true
}

// encode encodes the chunks of b, up to the first that cannot be read, or until ctx has ended. Then b is ready.
func (b *batch) encode(ctx context.Context, p *chunking, sources []Source, enc *chunk.Encoder) {
	defer func() { b.ready <- struct{}{} }()
	for c := b.first; c < b.end && ctx.Err() == nil; c++ {
		piece, start, end := p.at(c)
		source := &sources[piece]
		raw, err := b.raws(source, start, end)
		if err != nil {
			b.err = fmt.Errorf("read %s of tensor %q: %w", p.number(c), source.Name, err)
			return
		}
		stored, method := enc.Encode(raw, source.base(start, end), source.Layout)
		e := chunkEntry{stored: uint32(len(stored)), method: method}
		if method == chunk.Raw && len(raw) >= gatherBelow {
			b.addRaw(raw, piece)
		} else {
			e.crc = crc32c.Checksum(stored)
			b.add(b.keep(stored))
		}
		b.entries = append(b.entries, e)
	}
}

// raws are bytes start to end of a source, which stay as they are until b is used again.
func (b *batch) raws(s *Source, start, end int64) ([]byte, error) {
	if s.From == nil {
		return s.Data[start:end], nil
	}
	if len(b.in) == 0 && int64(cap(b.in)) < b.raw {
		b.in = make([]byte, 0, b.raw)
	}
	from, n := len(b.in), int(end-start)
	b.in = b.in[:from+n]
	read, err := readFull(s.From, b.in[from:], start)
	if err == io.EOF {
		err = fmt.Errorf("it ends at byte %d: %w", start+int64(read), io.ErrUnexpectedEOF)
	}
	return b.in[from:], err
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

// add puts more of buf after the spans: where the last span is of buf, too, they are written together.
func (b *batch) add(more []byte) {
	if n := len(b.spans); n > 0 && b.spans[n-1].piece < 0 {
		last := &b.spans[n-1]
		last.data = last.data[:len(last.data)+len(more)]
		return
	}
	b.spans = append(b.spans, writeSpan{data: more, piece: -1})
}

// addRaw puts a chunk of a piece, the next one to have an entry, after the spans, as it lies: where the chunk before it is there, too, they
// are neighbours in memory, and written together.
func (b *batch) addRaw(raw []byte, piece int) {
	next := len(b.entries)
	if n := len(b.spans); n > 0 && b.spans[n-1].piece == piece && b.spans[n-1].first+b.spans[n-1].unsummed == next {
		last := &b.spans[n-1]
		last.data, last.unsummed = last.data[:len(last.data)+len(raw)], last.unsummed+1
		return
	}
	b.spans = append(b.spans, writeSpan{data: raw, piece: piece, first: next, unsummed: 1})
}
