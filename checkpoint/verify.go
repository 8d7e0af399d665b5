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

// Verify reads and checks every byte, in little memory.
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

// check opens every shard, and reads no data.
func (c *Checkpoint) check(ctx context.Context) error {
	return inParallel(ctx, openAtOnce, numbers(len(c.m.Shards)), func(ctx context.Context, i int) error {
		_, err := c.acquire(ctx, i)
		if err == nil {
			c.release(i)
		}
		return err
	})
}

// VerifySample is Verify of so many per cent of the chunks, above 0 to 100, rounded up. Each chunk is as likely to be
// among them as any other; which ones they are depends on the manifest's bytes alone, so that the same call checks the
// same ones. It returns how many it has checked.
func (c *Checkpoint) VerifySample(ctx context.Context, percent float64) (checked int, err error) {
	defer explain(&err, "verify checkpoint of step %d", c.m.Step)
	if !(percent > 0 && percent <= 100) {
		return 0, fmt.Errorf("a sample is of more than 0 to 100 %%, not %v", percent)
	}
	left := c.Chunks()
	wanted := min(int(math.Ceil(float64(left)*percent/100)), left)
	checked = wanted
	rng := rand.New(rand.NewPCG(uint64(manifest.CRC(c.data)), uint64(c.m.Step)))
	for i := range c.slots {
		// Of those that are left, as many as are still wanted, each with the same chance (Knuth's algorithm S).
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

// Chunks is how many chunks c is stored in: its tensors' pieces, in parts of 256 KiB.
func (c *Checkpoint) Chunks() int {
	all := 0
	for i := range c.m.Shards {
		all += c.chunksOf(i)
	}
	return all
}

// chunksOf is how many chunks shard i has.
func (c *Checkpoint) chunksOf(i int) int {
	all := int64(0)
	for _, p := range c.byShard[i] {
		all += (p.Length + chunk.MaxBytes - 1) / chunk.MaxBytes
	}
	return int(all)
}

// Storage says how a tensor is stored.
type Storage struct {
	Stored int64 // bytes of its chunks on disk
	Delta  int64 // of them, those of chunks that are differences from the base
	// of them, by what coded them, chunks or planes: raw, constant, huff0, zstd; less the heads that say how planes are stored
	Codecs map[string]int64
}

// Storage describes the tensors, in the order of Tensors, by the shards' tables and the first bytes of
// chunks: no data is read.
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
