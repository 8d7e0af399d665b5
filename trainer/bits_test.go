package trainer

import (
	"fmt"
	"strings"
	"testing"

	"ddpbatch/checkpoint"
)

// sameModel compares parameters and buffers bit for bit.
func sameModel(t *testing.T, got, want *checkpoint.State) {
	t.Helper()
	compared := 0
	for _, tensor := range want.Tensors {
		if !strings.HasPrefix(tensor.Name, "model.") {
			continue
		}
		compared++
		if d := distance(floatsOf(t, got, tensor.Name), floatsOf(t, want, tensor.Name)); d != 0 {
			t.Errorf("%s differs by %.2g", tensor.Name, d)
		}
	}
	if compared == 0 {
		t.Error("the checkpoint has no model")
	}
}

// The bits of a trained model depend neither on how gradients are dealt to buckets, nor on when they travel, nor on what they travel
// over, nor on who keeps the optimizer's state.
func TestBitsOfParameters(t *testing.T) { // without the race detector
	ways := []struct {
		name   string
		over   string
		change func(*Config)
	}{
		{"a bucket for each parameter", "local", func(c *Config) { c.DDP.BucketMB = 0.0001 }},
		{"some parameters in a bucket", "local", func(c *Config) { c.DDP.BucketMB = 0.0005 }},
		{"no overlap", "local", func(c *Config) { c.DDP.Overlap = false }},
		{"no overlap, small buckets", "tcp", func(c *Config) { c.DDP.Overlap, c.DDP.BucketMB = false, 0.0005 }},
		{"over TCP", "tcp", func(*Config) {}},
		{"over shared memory", "shm", func(c *Config) { c.DDP.BucketMB = 0.001 }},
		{"unused parameters sought", "local", func(c *Config) { c.DDP.FindUnused = true }},
		{"compared every step", "local", func(c *Config) { c.DDP.CheckEverySteps = 1 }},
		{"ZeRO", "local", func(c *Config) { c.Optimizer.Zero = true }},
		{"ZeRO, small buckets", "shm", func(c *Config) { c.Optimizer.Zero, c.DDP.BucketMB = true, 0.0001 }},
	}
	jobs := map[string]func(*Config){
		"sgd":      func(*Config) {},
		"adamw":    func(c *Config) { c.Optimizer.Kind, c.Optimizer.LR, c.ClipNorm, c.Accumulate = "adamw", 0.01, 0.5, 2 },
		"float16":  func(c *Config) { c.Precision, c.DDP.Compress = "float16", "float16" },
		"bfloat16": func(c *Config) { c.DDP.Compress = "bfloat16" },
		"int8":     func(c *Config) { c.DDP.Compress = "int8" },
		"powersgd": func(c *Config) { c.DDP.Compress, c.DDP.Rank, c.DDP.StartStep = "powersgd", 2, 2 },
	}
	for name, job := range jobs {
		for _, world := range []int{2, 3} {
			t.Run(fmt.Sprintf("%s of %d ranks", name, world), func(t *testing.T) {
				cfg := deepJob()
				job(&cfg)
				want := complete(t, "local", world, cfg, nil)
				for _, way := range ways {
					t.Run(way.name, func(t *testing.T) {
						cfg := cfg
						way.change(&cfg)
						sameModel(t, complete(t, way.over, world, cfg, nil).state, want.state)
					})
				}
			})
		}
	}
}
