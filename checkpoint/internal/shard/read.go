package shard

import (
	"context"
	"fmt"
	"io"
	"sync"

	"ddpbatch/checkpoint/internal/chunk"
	"ddpbatch/internal/crc32c"
)

// Read fills dst with the bytes of a piece from an offset on. It decodes only the chunks that overlap the range, in up to workers
// goroutines (0 means 1), and decodes directly into dst if all of a chunk is wanted. After an error the contents of dst are undefined. Read
// panics if the range is not in the piece.
func (r *Reader) Read(ctx context.Context, piece int, offset int64, dst []byte, workers int) error {
	if length := r.chunking.pieces[piece].Length; offset < 0 || offset > length || int64(len(dst)) > length-offset {
		panic("shard: the range is not in the piece")
	}
	if len(dst) == 0 {
		return nil
	}
	first := r.chunking.first[piece]
	last := offset + int64(len(dst)) - 1
	w := &walk{
		reader: r, target: target{offset, dst},
		next: first + int(offset/chunkBytes), end: first + int(last/chunkBytes) + 1,
	}
	return w.do(ctx, workers)
}

// Verify reads and decodes every chunk, in up to workers goroutines (0 means 1), and discards the results.
func (r *Reader) Verify(ctx context.Context, workers int) error {
	w := &walk{reader: r, end: len(r.chunks)}
	return w.do(ctx, workers)
}

// VerifyChunk reads and decodes one chunk, counted from the first of the first piece, and discards the result.
func (r *Reader) VerifyChunk(chunk int) error {
	s := r.scratch.get()
	defer r.scratch.put(s)
	return r.run(s, chunk, chunk+1, target{})
}

// run reads consecutive chunks with one read, and decodes them into the target. Either all of them are direct, or none is.
func (r *Reader) run(s *scratch, first, end int, t target) error {
	last := r.chunks[end-1]
	offset := r.chunks[first].offset
	size := last.offset + int64(last.stored) - offset
	var block []byte
	if r.direct(first, t) {
		_, start, _ := r.chunking.at(first)
		block = t.whole(start, start+size)
	} else {
		block = grow(&s.block, int(size))
	}
	if n, err := readFull(r.file, block, offset); err != nil {
		return r.readFailed(first, offset+int64(n), err)
	}
	for c := first; c < end; c++ {
		stored := block[r.chunks[c].offset-offset:][:r.chunks[c].stored]
		if err := r.decodeInto(s, c, stored, t); err != nil {
			return err
		}
	}
	return nil
}

// direct reports whether chunk c can be read straight into the target.
func (r *Reader) direct(c int, t target) bool {
	_, start, end := r.chunking.at(c)
	return r.chunks[c].method == chunk.Raw && t.whole(start, end) != nil
}

// decodeInto checks the stored bytes of chunk c and decodes them into the target.
func (r *Reader) decodeInto(s *scratch, c int, stored []byte, t target) error {
	e := r.chunks[c]
	if got := crc32c.Checksum(stored); got != e.crc {
		return r.chunking.chunkDamage(c, "its checksum is %08x, the chunk table says %08x", got, e.crc)
	}
	piece, start, end := r.chunking.at(c)
	dst := t.whole(start, end)
	if e.method == chunk.Raw {
		if dst == nil {
			t.keep(start, stored)
		}
		return nil // a direct one is there already
	}
	raw := dst
	if raw == nil {
		raw = grow(&s.raw, int(end-start))
	}
	var base []byte
	if e.method&chunk.Delta != 0 {
		var err error
		if base, err = r.baseOf(s, c); err != nil {
			return err
		}
	}
	dec, err := s.decoder()
	if err != nil {
		return err
	}
	if err := dec.Decode(raw, stored, e.method, r.chunking.pieces[piece].Layout, base); err != nil {
		return r.chunking.chunkDamage(c, "it does not decode: %v", err)
	}
	if dst == nil {
		t.keep(start, raw)
	}
	return nil
}

// baseOf returns the base's chunk c, decoded. It is valid until the next call.
func (r *Reader) baseOf(s *scratch, c int) ([]byte, error) {
	if r.base == nil {
		return nil, r.chunking.chunkDamage(c, "it is the difference from a base, but the shard was opened without one")
	}
	if s.base == nil {
		s.base = &scratch{}
	}
	_, start, end := r.chunking.at(c)
	raw := grow(&s.difference, int(end-start))
	err := r.base.run(s.base, c, c+1, target{start, raw})
	if bad, ok := err.(*Damage); ok {
		return nil, &Damage{Piece: bad.Piece, Name: bad.Name, Detail: "in the base, " + bad.Detail}
	} else if err != nil {
		return nil, fmt.Errorf("in the base: %w", err)
	}
	return raw, nil
}

// readFailed returns the error of a read of chunk first and those after it that stopped at a position of the file.
func (r *Reader) readFailed(first int, position int64, err error) error {
	c := first
	for c+1 < len(r.chunks) && r.chunks[c+1].offset <= position {
		c++
	}
	if err == io.EOF {
		return r.chunking.chunkDamage(c, "the file ends at byte %d", position)
	}
	piece, _, _ := r.chunking.at(c)
	return fmt.Errorf("read %s of tensor %q, byte %d: %w", r.chunking.number(c), r.chunking.pieces[piece].Name, position, err)
}

// readFull reads all of b with ReadAt, and continues after short reads. It returns io.EOF alone if the file ends
// before that.
func readFull(f io.ReaderAt, b []byte, offset int64) (n int, err error) {
	for n < len(b) {
		more, err := f.ReadAt(b[n:], offset+int64(n))
		n += more
		switch {
		case n == len(b):
		case err == nil && more == 0:
			return n, io.ErrNoProgress
		case err == io.EOF || err == io.ErrUnexpectedEOF:
			return n, io.EOF
		case err != nil:
			return n, err
		}
	}
	return n, nil
}

// walk decodes chunks into a target, in runs of up to batchBytes. Several goroutines take the next run in turn, so that the file is read
// from front to back.
type walk struct {
	reader *Reader
	target target
	end    int

	mu   sync.Mutex // guards what is below
	next int
	err  error // the first
}

// do walks in up to workers goroutines, including the caller's.
func (w *walk) do(ctx context.Context, workers int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	work := func() {
		if err := w.work(ctx); err != nil {
			w.fail(err)
			cancel()
		}
	}
	var tasks sync.WaitGroup
	for range min(workers, w.end-w.next) - 1 {
		tasks.Go(work)
	}
	work()
	tasks.Wait()
	return w.err
}

func (w *walk) work(ctx context.Context) error {
	s := w.reader.scratch.get()
	defer w.reader.scratch.put(s)
	for {
		first, end := w.take()
		if first == end {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := w.reader.run(s, first, end, w.target); err != nil {
			return err
		}
	}
}

// take returns the next run, which is empty at the end.
func (w *walk) take() (first, end int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	first = w.next
	for size := int64(0); w.next < w.end && w.next-first < batchChunks; w.next++ {
		_, from, to := w.reader.chunking.at(w.next)
		size += to - from
		if size > batchBytes || w.reader.direct(w.next, w.target) != w.reader.direct(first, w.target) {
			break
		}
	}
	return first, w.next
}

func (w *walk) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
}

// target is where the bytes of a piece go. The zero target discards them.
type target struct {
	offset int64 // in the piece, of dst's first byte
	dst    []byte
}

// whole returns the memory for bytes start to end of the piece, or nil if not all of them are wanted.
func (t target) whole(start, end int64) []byte {
	if start < t.offset || end > t.offset+int64(len(t.dst)) {
		return nil
	}
	return t.dst[start-t.offset : end-t.offset]
}

// keep copies those bytes of the piece that are wanted. raw begins at start.
func (t target) keep(start int64, raw []byte) {
	end := min(start+int64(len(raw)), t.offset+int64(len(t.dst)))
	if from := max(start, t.offset); from < end {
		copy(t.dst[from-t.offset:], raw[from-start:end-start])
	}
}

// scratch is the memory that one goroutine needs to read chunks. Each part is allocated when it is first needed.
type scratch struct {
	dec        *chunk.Decoder
	block      []byte   // the stored bytes of a run
	raw        []byte   // a chunk of which only a part is wanted, or nothing
	difference []byte   // the base's chunk
	base       *scratch // for reading the base
}

func (s *scratch) decoder() (dec *chunk.Decoder, err error) {
	if s.dec == nil {
		s.dec, err = chunk.NewDecoder()
	}
	return s.dec, err
}

func (s *scratch) close() {
	if s.dec != nil {
		s.dec.Close()
	}
	if s.base != nil {
		s.base.close()
	}
}

// grow returns the first n bytes of a buffer. It allocates a new buffer if the old one is too short.
func grow(buf *[]byte, n int) []byte {
	if cap(*buf) < n {
		*buf = make([]byte, n)
	}
	return (*buf)[:n]
}

// scratches holds those that are not in use.
type scratches struct {
	mu   sync.Mutex
	idle []*scratch
}

func (p *scratches) get() *scratch {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.idle)
	if n == 0 {
		return &scratch{}
	}
	s := p.idle[n-1]
	p.idle = p.idle[:n-1]
	return s
}

func (p *scratches) put(s *scratch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, s)
}

func (p *scratches) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.idle {
		s.close()
	}
	p.idle = nil
}
