package shard

import (
	"context"
	"sync"

	"ddpbatch/checkpoint/internal/chunk"
)

// workers are goroutines that encode batches, each with an encoder of its own. They start as there is work for them.
type workers struct {
	plan    *plan
	sources []Source
	codec   chunk.Codec
	most    int
	started int
	todo    chan *batch // has places for all batches
	running sync.WaitGroup
}

func newWorkers(p *plan, sources []Source, o WriteOptions) *workers {
	w := &workers{plan: p, sources: sources, codec: o.Codec, most: min(max(o.Workers, 1), p.chunks())}
	w.todo = make(chan *batch, w.batches())
	return w
}

// batches is how many are under way at once: two for each worker, so that none waits for the writer as long as that keeps
// up, and one that is being written. Codec None has no use for workers.
func (w *workers) batches() int {
	if w.codec == chunk.None {
		return 1
	}
	return 2*w.most + 1
}

// encode has b encoded by a worker. They all end with ctx.
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
			b.encode(ctx, w.plan, w.sources, enc)
		case <-ctx.Done():
			return
		}
	}
}
