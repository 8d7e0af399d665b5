package shard

import (
	"context"
	"fmt"
	"io"

	"ddpbatch/checkpoint/internal/chunk"
	"ddpbatch/internal/crc32c"
)

const (
	// batchBytes is how much raw data is encoded, and stored data read, at once. Network file systems transfer 1 MiB
	// in a request.
	batchBytes = 1 << 20
	// batchChunks bounds a batch of small pieces.
	batchChunks = 1024
	// gatherBelow is the size from which a separate write is cheaper than a copy.
	gatherBelow = 64 << 10
)

// batch is a run of consecutive chunks on their way to the file. It is reused and keeps its memory.
type batch struct {
	first, end int // numbers of its first chunk and of the one after its last
	raw        int64
	entries    []chunkEntry
	spans      []writeSpan   // the stored bytes, in order
	buf        []byte        // its capacity is fixed while spans point into it
	in         []byte        // data read from sources that are not in memory; its capacity is fixed, too
	err        error         // why not all chunks are encoded; nil if they are
	ready      chan struct{} // notifies the writer that encode has returned; buffered
}

// writeSpan is written with one call: chunks of buf, or adjacent chunks that are written from the source's memory. The checksums of the
// latter are computed after they have been written: then they are in the cache, and memory is read once.
type writeSpan struct {
	data     []byte
	piece    int // of which all of it is; -1: it is of buf
	first    int // index in entries of the first that has no checksum yet
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

// reset makes b the batch of chunks from first on.
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

// staysRaw reports whether enc leaves every chunk of b raw, which it decides from the samples alone. It returns false if some chunks are
// not in memory.
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

// encode encodes the chunks of b, up to the first that cannot be read, or until ctx is done. Then b is ready.
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

// raws returns bytes start to end of a source. They stay valid until b is reused.
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

// keep copies stored to the end of buf, which has room: stored bytes are never more than raw bytes.
func (b *batch) keep(stored []byte) []byte {
	if len(b.buf) == 0 && int64(cap(b.buf)) < b.raw {
		b.buf = make([]byte, 0, b.raw)
	}
	start := len(b.buf)
	b.buf = append(b.buf, stored...)
	return b.buf[start:]
}

// add appends more, which is at the end of buf, to the spans. If the last span is of buf, too, they are written together.
func (b *batch) add(more []byte) {
	if n := len(b.spans); n > 0 && b.spans[n-1].piece < 0 {
		last := &b.spans[n-1]
		last.data = last.data[:len(last.data)+len(more)]
		return
	}
	b.spans = append(b.spans, writeSpan{data: more, piece: -1})
}

// addRaw appends a chunk of a piece, the next one to get an entry, to the spans without copying it. If the last span ends with the chunk
// before it, the two are adjacent in memory and written together.
func (b *batch) addRaw(raw []byte, piece int) {
	next := len(b.entries)
	if n := len(b.spans); n > 0 && b.spans[n-1].piece == piece && b.spans[n-1].first+b.spans[n-1].unsummed == next {
		last := &b.spans[n-1]
		last.data, last.unsummed = last.data[:len(last.data)+len(raw)], last.unsummed+1
		return
	}
	b.spans = append(b.spans, writeSpan{data: raw, piece: piece, first: next, unsummed: 1})
}
