package trainer

import (
	"fmt"

	"ddpbatch/trainer/ddp"
)

// ddpConfig is how gradients are averaged.
func ddpConfig(cfg Config, hook ddp.Hook, sums *ddp.SyncBatchNorm) ddp.Config {
	c := ddp.DefaultConfig()
	c.BucketBytes = max(1, int(cfg.DDP.BucketMB*(1<<20)))
	c.FirstBucketBytes = min(c.BucketBytes, 1<<20) // as in PyTorch
	c.Overlap, c.FindUnused, c.Hook = cfg.DDP.Overlap, cfg.DDP.FindUnused, hook
	c.SyncBatchNorm = sums
	return c
}

// newHook is the communication hook that ddp.compress names; nil: none.
func newHook(cfg Config) (ddp.Hook, error) {
	switch cfg.DDP.Compress {
	case "float16":
		return ddp.NewFloat16Hook(), nil
	case "bfloat16":
		return ddp.NewBFloat16Hook(), nil
	case "int8":
		return ddp.NewInt8Hook(), nil
	case "powersgd":
		h, err := ddp.NewPowerSGDHook(ddp.PowerSGDConfig{Rank: cfg.DDP.Rank, Start: cfg.DDP.StartStep, MinRate: 2, Seed: cfg.Seed})
		if err != nil {
			return nil, fmt.Errorf("ddp.compress: %w", err)
		}
		return h, nil
	}
	return nil, nil
}
