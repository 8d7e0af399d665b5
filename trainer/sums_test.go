package trainer

import (
	"math"
	"strings"
	"testing"

	"ddpbatch/checkpoint"
)

// sumsInOtherOrder is how far values of about 1 may be apart after some steps of SGD when the gradients of a batch are added up in
// another order: a few units in the last place, 6e-8, for each step.
const sumsInOtherOrder = 3e-6

// nearModel compares parameters and buffers.
func nearModel(t *testing.T, got, want *checkpoint.State, tolerance float64) {
	t.Helper()
	compared := 0
	for _, tensor := range want.Tensors {
		if !strings.HasPrefix(tensor.Name, "model.") {
			continue
		}
		compared++
		if d := distance(floatsOf(t, got, tensor.Name), floatsOf(t, want, tensor.Name)); d > tolerance {
			t.Errorf("%s differs by %.2g", tensor.Name, d)
		}
	}
	if compared == 0 {
		t.Error("the checkpoint has no model")
	}
}

// However a batch of rows is split up, over ranks, passes, replicas or pipelines, the same steps are taken.
func TestABatchMayBeSplit(t *testing.T) { // without the race detector
	type split struct {
		name   string
		world  int
		rows   int // of a step
		change func(*Config)
	}
	splits := []split{
		{"2 ranks", 2, 24, func(c *Config) { c.BatchSize = 12 }},
		{"4 ranks", 4, 24, func(c *Config) { c.BatchSize = 6 }},
		{"3 ranks, 2 passes", 3, 24, func(c *Config) { c.BatchSize, c.Accumulate = 4, 2 }},
		{"5 passes, of other sizes", 1, 24, func(c *Config) { c.BatchSize, c.Accumulate = 6, 4 }},
		{"3 replicas in a process", 1, 24, func(c *Config) { c.Mode, c.Replicas = "dp", 3 }},
		{"5 replicas in a process, of other sizes", 1, 24, func(c *Config) { c.Mode, c.Replicas = "dp", 5 }},
		{"2 ranks of 2 replicas", 2, 24, func(c *Config) { c.Mode, c.Replicas, c.BatchSize = "dp", 2, 12 }},
		{"a pipeline, 1 micro-batch", 2, 24, func(c *Config) { c.Pipeline, c.MicroBatches = 2, 1 }},
		{"a pipeline, 5 micro-batches", 2, 24, func(c *Config) { c.Pipeline, c.MicroBatches = 2, 5 }},
		{"a pipeline of 3 stages, 2 passes", 3, 24, func(c *Config) { c.Pipeline, c.BatchSize, c.Accumulate = 3, 12, 2 }},
		{"2 pipelines", 4, 24, func(c *Config) { c.Pipeline, c.BatchSize = 2, 12 }},
		{"5 ranks, of which some have fewer rows at the end", 5, 25, func(c *Config) { c.BatchSize, c.Data.Remainder = 5, "uneven" }},
	}
	check := func(t *testing.T, dir string, cfg Config, splits []split) {
		t.Helper()
		cfg.Data.Train, cfg.Data.Eval = "0:48", "3:20" // all, and 17 of them
		inDir := func(_ int, _ *Config, env *Env) { env.WorkDir = dir }
		unsplit := map[int]training{}
		for _, rows := range []int{24, 25} {
			cfg.BatchSize = rows
			unsplit[rows] = complete(t, "local", 1, cfg, inDir)
		}
		for _, s := range splits {
			t.Run(s.name, func(t *testing.T) {
				cfg := cfg
				cfg.BatchSize = s.rows
				s.change(&cfg)
				got, want := complete(t, "local", s.world, cfg, inDir), unsplit[s.rows]
				nearModel(t, got.state, want.state, sumsInOtherOrder)
				if d := distance(got.losses, want.losses); d > sumsInOtherOrder {
					t.Errorf("losses %v, unsplit %v", got.losses, want.losses)
				}
				if d := math.Abs(got.EvalLoss - want.EvalLoss); d > sumsInOtherOrder || got.Accuracy != want.Accuracy || !got.Evaluated {
					t.Errorf("%+v, unsplit %+v", got.Result, want.Result)
				}
			})
		}
	}
	t.Run("mlp", func(t *testing.T) { check(t, "", deepJob(), splits) })
	t.Run("mlp, clipped", func(t *testing.T) {
		cfg := deepJob()
		cfg.ClipNorm = 0.05 // below the norm of every stage
		check(t, "", cfg, splits)
	})
	t.Run("gpt", func(t *testing.T) {
		dir, cfg := textJob(t)
		check(t, dir, cfg, splits)
	})
	dir, cfg := imageJob(t)
	t.Run("cnn", func(t *testing.T) {
		cfg := cfg
		cfg.Model.BatchNorm = false
		check(t, dir, cfg, splits)
	})
	t.Run("cnn with batch norm over ranks", func(t *testing.T) {
		cfg := cfg
		cfg.DDP.SyncBatchNorm = true
		check(t, dir, cfg, splits[:2])
	})
}
