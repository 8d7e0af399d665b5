package checkpoint

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"

	"ddpbatch/checkpoint/internal/chunk"
	"ddpbatch/checkpoint/internal/manifest"
	"ddpbatch/checkpoint/internal/shard"
)

// Verify reads and checks every byte, and uses little memory.
func (c *Checkpoint) Verify(ctx context.Context) (err error) {
	defer explain(&err, "verify checkpoint of step %d", c.m.Step)
	return c.verify(ctx)
}

func (c *Checkpoint) verify(ctx context.Context) error {
	for i := range c.slots {
		if err := c.use(ctx, i, func(r *shard.Reader) error { return r.Verify(ctx, c.d.workers) }); err != nil {
			return err
		}
	}
	return nil
}

// check opens every shard, but reads no data.
func (c *Checkpoint) check(ctx context.Context) error {
	return inParallel(ctx, openAtOnce, numbers(len(c.m.Shards)), func(ctx context.Context, i int) error {
		_, err := c.acquire(ctx, i)
		if err == nil {
			c.release(i)
		}
		return err
	})
}

// VerifySample is Verify for a sample of the chunks: the given percentage, above 0 to 100, rounded up. Each chunk is as likely to be
// in the sample as any other. Which ones are depends on the manifest's bytes alone, so that the same call checks the
// same chunks. VerifySample returns how many it has checked.
func (c *Checkpoint) VerifySample(ctx context.Context, percent float64) (checked int, err error) {
	defer explain(&err, "verify checkpoint of step %d", c.m.Step)
	if !(percent > 0 && percent <= 100) {
		return 0, fmt.Errorf("the sample must be more than 0 and at most 100 %%, got %v", percent)
	}
	left := c.Chunks()
	wanted := min(int(math.Ceil(float64(left)*percent/100)), left)
	checked = wanted
	rng := rand.New(rand.NewPCG(uint64(manifest.CRC(c.data)), uint64(c.m.Step)))
	for i := range c.slots {
		// Choose as many of the remaining chunks as are still wanted, each with the same probability (Knuth's algorithm S).
		var chosen []int
		for n := range c.chunksOf(i) {
			if rng.IntN(left) < wanted {
				chosen = append(chosen, n)
				wanted--
			}
			left--
		}
		if len(chosen) == 0 {
			continue
		}
		err := c.use(ctx, i, func(r *shard.Reader) error {
			return inParallel(ctx, c.d.workers, chosen, func(_ context.Context, n int) error { return r.VerifyChunk(n) })
		})
		if err != nil {
			return 0, err
		}
	}
	return checked, nil
}

// Chunks returns how many chunks c is stored in: its tensors' pieces, in parts of 256 KiB.
func (c *Checkpoint) Chunks() int {
	all := 0
	for i := range c.m.Shards {
		all += c.chunksOf(i)
	}
	return all
}

// chunksOf returns how many chunks shard i has.
func (c *Checkpoint) chunksOf(i int) int {
	all := int64(0)
	for _, p := range c.byShard[i] {
		all += (p.Length + chunk.MaxBytes - 1) / chunk.MaxBytes
	}
	return int(all)
}

// Storage describes how a tensor is stored.
type Storage struct {
	Stored int64 // bytes of its chunks on disk
	Delta  int64 // the part of Stored in chunks that are differences from the base
	// Codecs divides Stored by what coded the chunks or planes: raw, constant, huff0, zstd. The heads that describe planes are not
	// included.
	Codecs map[string]int64
}

// Storage describes the tensors, in the order of Tensors. It reads the shards' tables and the first bytes of
// chunks, but no data.
func (c *Checkpoint) Storage(ctx context.Context) (list []Storage, err error) {
	defer explain(&err, "read checkpoint of step %d", c.m.Step)
	list = make([]Storage, len(c.m.Tensors))
	for i := range list {
		list[i].Codecs = map[string]int64{}
	}
	for i := range c.m.Shards {
		err := c.use(ctx, i, func(r *shard.Reader) error {
			planes, err := r.PlaneStats(ctx)
			if err != nil {
				return err
			}
			for k, piece := range r.Stats() {
				list[c.byShard[i][k].Tensor].add(piece, planes[k])
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return list, nil
}

func (s *Storage) add(piece shard.PieceStats, planes map[chunk.PlaneCodec]int64) {
	s.Stored += piece.Stored
	for method, n := range piece.ByMethod {
		if method&chunk.Delta != 0 {
			s.Delta += n
		}
		switch method &^ chunk.Delta {
		case chunk.Raw:
			s.Codecs[chunk.PlaneRaw.String()] += n
		case chunk.Zstd:
			s.Codecs[chunk.PlaneZstd.String()] += n
		}
	}
	for codec, n := range planes {
		s.Codecs[codec.String()] += n
	}
}
