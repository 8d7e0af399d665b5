package checkpoint

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"sync"

	"ddpbatch/checkpoint/internal/chunk"
	"ddpbatch/checkpoint/internal/manifest"
	"ddpbatch/checkpoint/internal/shard"
)

// Target is a part of a tensor to read: len(Data) bytes from byte Start.
type Target struct {
	Name  string
	Start int64
	Data  []byte
}

// spanBytes is how much one goroutine reads at a time: whole chunks.
const spanBytes = 16 * chunk.MaxBytes

// span is a part of a target that lies in a single piece.
type span struct {
	shard, piece int
	offset       int64 // within the piece
	dst          []byte
}

// Read fills all targets. It reads and decodes only the chunks that hold them, with
// Options.Workers goroutines. After an error the contents of the targets are undefined. A *CorruptError
// names shard and tensor. Targets must not share memory.
func (c *Checkpoint) Read(ctx context.Context, targets []Target) (err error) {
	defer explain(&err, "read checkpoint of step %d", c.m.Step)
	spans, err := c.spans(targets)
	if err != nil {
		return err
	}
	return c.readSpans(ctx, spans)
}

// spans finds where targets lie, by shard.
func (c *Checkpoint) spans(targets []Target) ([]span, error) {
	var spans []span
	for _, target := range targets {
		i, ok := c.byName[target.Name]
		if !ok {
			return nil, fmt.Errorf("no tensor %q in the checkpoint", target.Name)
		}
		t, n := c.m.Tensors[i], int64(len(target.Data))
		if size := bytesOf(t); target.Start < 0 || target.Start > size-n {
			return nil, fmt.Errorf("tensor %q has %d bytes: cannot read %d from byte %d", t.Name, size, n, target.Start)
		}
		first := sort.Search(len(t.Pieces), func(k int) bool { return t.Pieces[k].Start+t.Pieces[k].Length > target.Start })
		for _, p := range t.Pieces[first:] {
			from, to := max(target.Start, p.Start), min(target.Start+n, p.Start+p.Length)
			if from >= to {
				break
			}
			spans = c.cut(spans, p, from-p.Start, target.Data[from-target.Start:to-target.Start])
		}
	}
	slices.SortStableFunc(spans, func(a, b span) int { return a.shard - b.shard })
	return spans, nil
}

// cut adds the bytes from offset of a piece to spans, split where chunks end.
func (c *Checkpoint) cut(spans []span, p manifest.Piece, offset int64, dst []byte) []span {
	refs := c.byShard[p.Shard]
	piece := sort.Search(len(refs), func(k int) bool { return refs[k].Offset+refs[k].Length > p.Offset })
	for len(dst) > 0 {
		n := min(spanBytes-offset%spanBytes, int64(len(dst)))
		spans = append(spans, span{p.Shard, piece, offset, dst[:n]})
		offset, dst = offset+n, dst[n:]
	}
	return spans
}

// readSpans reads spans, which are in the order of their shards. It has up to maxOpen shards open at
// a time.
func (c *Checkpoint) readSpans(ctx context.Context, spans []span) error {
	for len(spans) > 0 {
		n, shards := 0, []int{}
		for ; n < len(spans); n++ {
			if n == 0 || spans[n].shard != spans[n-1].shard {
				if len(shards) == maxOpen {
					break
				}
				shards = append(shards, spans[n].shard)
			}
		}
		if err := c.readOpen(ctx, shards, spans[:n]); err != nil {
			return err
		}
		spans = spans[n:]
	}
	return nil
}

// readOpen opens the shards of spans and reads the spans.
func (c *Checkpoint) readOpen(ctx context.Context, shards []int, spans []span) error {
	if err := c.openAll(ctx, shards); err != nil {
		return err
	}
	defer c.releaseAll(shards)
	return inParallel(ctx, c.d.workers, spans, func(ctx context.Context, s span) error {
		return c.use(ctx, s.shard, func(r *shard.Reader) error { return r.Read(ctx, s.piece, s.offset, s.dst, 1) })
	})
}

// inParallel runs f for every item in up to workers goroutines. It stops at the first error and
// returns it.
func inParallel[T any](ctx context.Context, workers int, items []T, f func(context.Context, T) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	work := make(chan T)
	var tasks sync.WaitGroup
	for range min(workers, len(items)) {
		tasks.Go(func() {
			for item := range work {
				if err := f(ctx, item); err != nil {
					stop(err)
					return
				}
			}
		})
	}
feed:
	for _, item := range items {
		select {
		case work <- item:
		case <-ctx.Done():
			break feed
		}
	}
	close(work)
	tasks.Wait()
	return context.Cause(ctx)
}
