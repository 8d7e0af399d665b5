package trainer

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ddpbatch/trainer/data"
)

// rounding is how many times PyTorch's own error ours may be. Both add the same float32 numbers in different orders, and what comes
// of it is amplified in the same way, say by Adam where a gradient is nearly 0: so the error of PyTorch in float32, against PyTorch in
// float64, tells what is to be expected. The largest of some hundred errors varies by a small factor. (Where the true gradient is 0, as
// for the bias of a convolution before batch normalization, Adam takes whole steps of rounding errors, here and there.)
const rounding = 4

// leastError stands for PyTorch's error where that is 0 or nearly so by chance: some units in the last place of numbers around 1.
const leastError = 3e-7

// The losses of all steps and the parameters and buffers after the last are PyTorch's, for every optimizer and kind of model, from the
// initial values that PyTorch makes of the same seed, with the order of rows that its DistributedSampler makes. Several
// ranks are compared with one process that has all their rows in one batch, which is what the mean over ranks is.
func TestPyTorch(t *testing.T) { // without the race detector
	dir := t.TempDir()
	const rows = 50
	writeNPY(t, dir, "x.npy", []int{rows, 6}, normals(1, rows*6))
	writeNPY(t, dir, "y.npy", []int{rows, 3}, normals(2, rows*3))
	writeNPY(t, dir, "images.npy", []int{rows, 2, 9, 8}, normals(3, rows*2*9*8))
	writeNPY(t, dir, "classes.npy", []int{rows}, classesOf(4, rows, 5))
	text := bytes.Repeat([]byte("The quick brown fox jumps over the lazy dog. \xff"), 12)
	if err := os.WriteFile(filepath.Join(dir, "text"), text, 0o600); err != nil {
		t.Fatal(err)
	}

	regression := func(c *Config) { c.Loss, c.Data.InputFile, c.Data.TargetFile = "mse", "x.npy", "y.npy" }
	classes := func(c *Config) { c.Data.InputFile, c.Data.TargetFile = "x.npy", "classes.npy" }
	images := func(c *Config) {
		c.Data.InputFile, c.Data.TargetFile = "images.npy", "classes.npy"
		c.Model.Kind, c.Model.Channels, c.Model.Hidden = "cnn", []int{4, 6}, []int{10}
	}
	adam := func(c *Config, kind string) { c.Optimizer.Kind, c.Optimizer.LR = kind, 0.01 }

	tests := []struct {
		name   string
		world  int
		change func(*Config)
	}{
		{"sgd", 1, regression},
		{"sgd of 3 ranks, which are padded", 3, regression},
		{"sgd of 3 ranks, rows dropped", 3, func(c *Config) { regression(c); c.Data.Remainder = "drop" }},
		{"nesterov", 2, func(c *Config) {
			regression(c)
			c.Optimizer.Momentum, c.Optimizer.Nesterov, c.Optimizer.WeightDecay, c.Model.Activation = 0.9, true, 0.01, "tanh"
		}},
		{"dampening", 1, func(c *Config) { classes(c); c.Optimizer.Momentum, c.Optimizer.Dampening = 0.9, 0.5 }},
		{"adam", 1, func(c *Config) { classes(c); adam(c, "adam"); c.Optimizer.WeightDecay = 0.01 }},
		{"adam, not shuffled", 2, func(c *Config) { regression(c); adam(c, "adam"); c.Data.Shuffle = false }},
		{"adamw", 2, func(c *Config) { classes(c); adam(c, "adamw"); c.Optimizer.WeightDecay = 0.1 }},
		{"adamw, cosine, clipped, accumulated", 2, func(c *Config) {
			classes(c)
			adam(c, "adamw")
			c.Schedule.Kind, c.Schedule.MinLR, c.ClipNorm, c.Accumulate, c.BatchSize = "cosine", 0.001, 0.3, 3, 3
		}},
		{"cnn", 2, func(c *Config) { images(c); c.Optimizer.Momentum = 0.9 }},
		{"cnn with batch norm", 1, func(c *Config) { images(c); adam(c, "adam"); c.Model.BatchNorm = true }},
		{"cnn with batch norm over ranks", 2, func(c *Config) { images(c); c.Model.BatchNorm, c.DDP.SyncBatchNorm = true, true }},
		{"gpt", 2, func(c *Config) {
			adam(c, "adamw")
			c.Data.Kind, c.Data.Path, c.BatchSize = "text", "text", 4
			c.Model.Kind, c.Model.Layers, c.Model.Heads, c.Model.Width, c.Model.Context = "gpt", 2, 2, 16, 12
		}},
	}
	var cases []torchCase
	for i, test := range tests {
		cfg := DefaultConfig()
		cfg.Epochs, cfg.BatchSize, cfg.Seed, cfg.Model.Hidden, cfg.Data.Kind = 2, 8, uint64(i), []int{7, 5}, "npy"
		cfg.Optimizer.LR = 0.05
		test.change(&cfg)
		c := torchCase{cfg: cfg, world: test.world, dir: dir, exact: true}
		if cfg.Model.Kind == "gpt" { // PyTorch has no GPT whose initial values could be the same
			c.init = filepath.Join(dir, "init.safetensors")
			c.cfg.Init = c.init
			writeInit(t, cfg, data.Spec{Symbols: 256, Classes: 256}, c.init)
		}
		cases = append(cases, c)
	}
	results := runTorch(t, cases...)
	for i, test := range tests {
		t.Run(test.name, func(t *testing.T) { compare(t, cases[i], results[i]) })
	}
}

// compare holds a training against PyTorch's.
func compare(t *testing.T, c torchCase, result map[string]reference) {
	first := complete(t, "local", c.world, c.cfg, func(_ int, cfg *Config, env *Env) {
		cfg.Optimizer.LR, cfg.Optimizer.WeightDecay, cfg.Schedule.MinLR = 1e-30, 0, 0 // nothing moves
		env.WorkDir = c.dir
	})
	got := complete(t, "local", c.world, c.cfg, func(_ int, _ *Config, env *Env) { env.WorkDir = c.dir })
	near, exact := result["float32"], result["float64"]
	if len(near.After) == 0 || len(near.Losses) < 4 {
		t.Fatalf("PyTorch took %d steps and has %d tensors", len(near.Losses), len(near.After))
	}
	check := func(what string, d, own float64) {
		if d > rounding*max(own, leastError) {
			t.Errorf("%s: differs by %.2g from PyTorch in float64, whose float32 differs by %.2g", what, d, own)
		}
	}
	check("losses", distance(got.losses, exact.Losses), distance(near.Losses, exact.Losses))
	models := 0
	for _, tensor := range got.state.Tensors {
		name, ok := strings.CutPrefix(tensor.Name, "model.")
		if !ok {
			continue
		}
		models++
		buffer := strings.Contains(name, "running_")
		if d := distance(floatsOf(t, first.state, tensor.Name), near.Before[name]); d > 1e-7 && !buffer {
			t.Errorf("%s: the initial value differs by %v", name, d)
		}
		check(name, distance(floatsOf(t, got.state, tensor.Name), exact.After[name]), distance(near.After[name], exact.After[name]))
	}
	if models != len(near.After) {
		t.Errorf("%d tensors, PyTorch has %d", models, len(near.After))
	}
}
