package shard

import (
	"context"

	"ddpbatch/checkpoint/internal/chunk"
)

// encodeAll encodes all chunks of the plan and calls write with one batch of them after the other. It ends, with all its
// goroutines, soon after ctx has, or with the first error of write. Memory is bounded by the number of batches, which are
// used in turn.
//
// What stays raw is not handed to workers: there is nothing to do but to write it, and goroutines that wake each other for
// that take some 7 % of the processors' time for a save.
func encodeAll(ctx context.Context, p *plan, sources []Source, o WriteOptions, write func(*batch) error) error {
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
	begun, next := 0, 0 // batches, and the first chunk that is in none of them
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
		if err := b.failed(ctx); err != nil {
			return err
		}
		if err := write(b); err != nil {
			return err
		}
	}
}
