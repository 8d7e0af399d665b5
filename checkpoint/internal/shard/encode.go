package shard

import (
	"context"
	"sync"

	"ddpbatch/checkpoint/internal/chunk"
)

// pipeline takes chunks from workers that encode them, a batch each, to one goroutine that writes the batches in
// order. Memory is bounded by the number of batches: a worker waits until one is free.
type pipeline struct {
	plan    *plan
	sources []Source
	free    chan *batch // has places for all of them
	order   chan *batch // those with chunks, in the chunks' order; likewise

	mu   sync.Mutex // orders what goes into order
	next int        // the first chunk that is in no batch yet
}

// encodeAll encodes all chunks of the plan and calls write with one batch of them after the other. It ends, with all its
// goroutines, soon after ctx has, or with the first error of write.
func encodeAll(ctx context.Context, p *plan, sources []Source, o WriteOptions, write func(*batch) error) error {
	if o.Codec == chunk.None {
		return encodeHere(ctx, p, sources, write)
	}
	batches := p.raw/batchBytes + int64(p.chunks())/batchChunks + 1 // about
	workers := min(max(o.Workers, 1), int(batches))
	// Two for each worker, so that none waits for the writer as long as that keeps up, and one that is being written.
	line := &pipeline{plan: p, sources: sources, free: make(chan *batch, 2*workers+1), order: make(chan *batch, 2*workers+1)}
	for range cap(line.free) {
		line.free <- &batch{ready: make(chan struct{}, 1)}
	}
	encoders := make([]*chunk.Encoder, workers)
	for i := range encoders {
		var err error
		if encoders[i], err = chunk.NewEncoder(o.Codec); err != nil {
			return err
		}
	}
	var tasks sync.WaitGroup
	defer tasks.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, enc := range encoders {
		tasks.Go(func() { line.work(ctx, enc) })
	}
	return line.drain(ctx, write)
}

// encodeHere is encodeAll where checksums are all that there is to encode: without workers, whatever is asked for. What is written at once
// is still in the cache; with a goroutine that works ahead, memory is read twice, and a save takes a quarter more of the processors' time.
func encodeHere(ctx context.Context, p *plan, sources []Source, write func(*batch) error) error {
	enc, err := chunk.NewEncoder(chunk.None)
	if err != nil {
		return err
	}
	line := &pipeline{plan: p, sources: sources}
	for b := (&batch{}); b.end < p.chunks(); {
		b.reset(p, b.end)
		b.encode(ctx, line, enc)
		if err := b.failed(ctx); err != nil {
			return err
		}
		if err := write(b); err != nil {
			return err
		}
	}
	return nil
}

// work encodes batches until no chunk is left or ctx ends.
func (l *pipeline) work(ctx context.Context, enc *chunk.Encoder) {
	for {
		b := l.take(ctx)
		if b == nil {
			return
		}
		b.encode(ctx, l, enc)
		b.ready <- struct{}{}
	}
}

// take is a batch with the next chunks, not yet encoded; nil if there are none or ctx has ended.
func (l *pipeline) take(ctx context.Context) *batch {
	var b *batch
	select {
	case b = <-l.free:
	case <-ctx.Done():
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.next == l.plan.chunks() {
		l.free <- b // for the next worker that looks
		return nil
	}
	b.reset(l.plan, l.next)
	l.next = b.end
	l.order <- b
	return b
}

// drain writes the batches in order.
func (l *pipeline) drain(ctx context.Context, write func(*batch) error) error {
	for written := 0; written < l.plan.chunks(); {
		var b *batch
		select {
		case b = <-l.order:
		case <-ctx.Done():
			return ctx.Err()
		}
		select {
		case <-b.ready:
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := b.failed(ctx); err != nil {
			return err
		}
		if err := write(b); err != nil {
			return err
		}
		written = b.end
		l.free <- b
	}
	return nil
}
