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

// VerifySample is Verify of so many per cent of the chunks, above 0 to 100, rounded up. Each chunk is as likely to be
// among them as any other; which ones they are depends on the manifest's bytes alone, so that the same call checks the
// same ones. It returns how many it has checked.
func (c *Checkpoint) VerifySample(ctx context.Context, percent float64) (int, error) {
	if !(percent > 0 && percent <= 100) {
		return 0, fmt.Errorf("verify checkpoint of step %d: a sample is of more than 0 to 100 %%, not %v", c.m.Step, percent)
	}
	left := c.Chunks()
	wanted := min(int(math.Ceil(float64(left)*percent/100)), left)
	checked := wanted
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
			return 0, fmt.Errorf("verify checkpoint of step %d: %w", c.m.Step, classify(err))
		}
	}
	return checked, nil
}
