package shard

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"sync"

	"ddpbatch/checkpoint/internal/chunk"
	"ddpbatch/internal/crc32c"
)

// Source is a piece with its bytes. Write reads them in several goroutines until it returns.
type Source struct {
	Piece
	Data []byte      // of Length bytes
	From io.ReaderAt // unless nil, holds the Length bytes in place of Data; each byte is read once, a chunk at a time
	Base []byte      // nil: stored whole. Otherwise Length bytes, and chunks may be stored as the difference from them
}

// base returns the base of bytes start to end, or nil if there is none.
func (s *Source) base(start, end int64) []byte {
	if s.Base == nil {
		return nil
	}
	return s.Base[start:end]
}

// WriteOptions are options of Write. The zero value is ready to use.
type WriteOptions struct {
	Codec   chunk.Codec
	Workers int // goroutines that encode, at most; 0 means 1. Chunks that stay raw need none
}

// Sum is what a manifest records about a whole file.
type Sum struct {
	Size int64
	CRC  uint32 // CRC-32C
}

// Write writes a shard to w: its header, the pieces in order, the table and the trailer. It checks ctx before each chunk
// and before it writes each batch of up to 1 MiB. An error of w, or of a source, ends it and is wrapped.
// Write panics on arguments that contradict each other.
//
// Workers encode ahead while Write's own goroutine writes up to 1 MiB at once; chunks that are stored raw are written
// from the source's memory. If samples show that all of a batch stays raw, or with codec None, no worker is used.
func Write(ctx context.Context, w io.Writer, h Header, pieces []Source, o WriteOptions) (Sum, error) {
	if h.Version != Version || h.Step < 0 || h.Shard < 0 || h.Shard >= h.Shards || int64(h.Shards) > 1<<32-1 || o.Workers < 0 {
		panic("shard: no such header or workers")
	}
	p := mustChunk(piecesOf(pieces))
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

// piecesOf returns the pieces of sources. It panics if their bytes do not have the given lengths.
func piecesOf(sources []Source) []Piece {
	pieces := make([]Piece, len(sources))
	for i, s := range sources {
		if s.From == nil && int64(len(s.Data)) != s.Length || s.From != nil && s.Data != nil || s.Base != nil &&
			int64(len(s.Base)) != s.Length {
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

// encodeAll encodes all chunks of the sources and calls write with one batch of them after the other. It ends, with all its
// goroutines, soon after ctx is done, or with the first error of write. Memory is bounded by the number of batches, which are
// reused in turn.
//
// Batches that stay raw are not passed to workers: they only have to be written, and goroutines that wake each other for
// that take some 7 % of the processors' time for a save.
func encodeAll(ctx context.Context, p *chunking, sources []Source, o WriteOptions, write func(*batch) error) error {
	sampler, err := chunk.NewEncoder(o.Codec)
	if err != nil {
		return err
	}
	rawEncoder, err := chunk.NewEncoder(chunk.None)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	team := newWorkers(p, sources, o)
	defer team.running.Wait()
	defer cancel()
	batches := make([]*batch, team.batches())
	for i := range batches {
		batches[i] = &batch{ready: make(chan struct{}, 1)}
	}
	begun, next := 0, 0 // the number of batches begun, and the first chunk after them
	for written := 0; ; written++ {
		for ; begun < written+len(batches) && next < p.chunks(); begun++ {
			b := batches[begun%len(batches)]
			b.reset(p, next)
			next = b.end
			if o.Codec == chunk.None || b.staysRaw(p, sources, sampler) {
				b.encode(ctx, p, sources, rawEncoder)
			} else if err := team.encode(ctx, b); err != nil {
				return err
			}
		}
		if written == begun {
			return nil
		}
		b := batches[written%len(batches)]
		select {
		case <-b.ready:
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := cmp.Or(ctx.Err(), b.err); err != nil {
			return err
		}
		if err := write(b); err != nil {
			return err
		}
	}
}

// workers are goroutines that encode batches, each with an encoder of its own. They are started when there is work for them.
type workers struct {
	chunking *chunking
	sources  []Source
	codec    chunk.Codec
	most     int
	started  int
	todo     chan *batch // has room for all batches
	running  sync.WaitGroup
}

func newWorkers(p *chunking, sources []Source, o WriteOptions) *workers {
	w := &workers{chunking: p, sources: sources, codec: o.Codec, most: min(max(o.Workers, 1), p.chunks())}
	w.todo = make(chan *batch, w.batches())
	return w
}

// batches returns how many are in progress at once: two for each worker, so that no worker waits for the writer as long as the writer keeps
// up, and one that is being written. Codec None needs no workers.
func (w *workers) batches() int {
	if w.codec == chunk.None {
		return 1
	}
	return 2*w.most + 1
}

// encode passes b to a worker. All workers end with ctx.
func (w *workers) encode(ctx context.Context, b *batch) error {
	if w.started < w.most {
		enc, err := chunk.NewEncoder(w.codec)
		if err != nil {
			return err
		}
		w.started++
		w.running.Go(func() { w.work(ctx, enc) })
	}
	w.todo <- b
	return nil
}

func (w *workers) work(ctx context.Context, enc *chunk.Encoder) {
	for {
		select {
		case b := <-w.todo:
			b.encode(ctx, w.chunking, w.sources, enc)
		case <-ctx.Done():
			return
		}
	}
}
