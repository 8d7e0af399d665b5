package trainer

import (
	"math"
	"path/filepath"
	"testing"

	"ddpbatch/internal/testkit/thin"
	"ddpbatch/trainer/data"
)

// Of MNIST, 1,000 digits to train on and 500 to evaluate, models get as many right as PyTorch's, but for 2 digits. Both begin with the same
// parameters and take the same steps, so that only rounding can tell them apart.
func TestDigitsAsPyTorch(t *testing.T) { // without the race detector
	if thin.Race {
		t.Skip("has one rank alone: the race detector would have nothing to watch")
	}
	base := mnist(t)
	base.Epochs, base.BatchSize, base.Optimizer.Momentum, base.Optimizer.LR = 8, 64, 0.9, 0.02
	for name, change := range map[string]func(*testing.T, *Config){
		"mlp": func(_ *testing.T, c *Config) { c.Model.Hidden = []int{128} },
		"cnn": func(_ *testing.T, c *Config) { c.Model.Kind, c.Model.Channels, c.Epochs = "cnn", []int{16, 32}, 3 },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := base
			change(t, &cfg)
			got := complete(t, "local", 1, cfg, nil)
			want := runTorch(t, torchCase{cfg: cfg, world: 1})[0]["float32"]
			t.Logf("%.2f %% right, PyTorch %.2f %%; loss %.4f in the last step, PyTorch %.4f",
				100*got.Accuracy, 100*want.Accuracy, got.losses[len(got.losses)-1], want.Losses[len(want.Losses)-1])
			if d := math.Abs(got.Accuracy - want.Accuracy); d > 0.005 || want.Accuracy < 0.8 {
				t.Errorf("%.2f %% right, PyTorch %.2f %%", 100*got.Accuracy, 100*want.Accuracy)
			}
			if len(got.losses) != len(want.Losses) {
				t.Errorf("%d steps, PyTorch %d", len(got.losses), len(want.Losses))
			}
		})
	}
}

// A small GPT on Shakespeare has PyTorch's loss after the same steps, within 2 %. (They agree to many more digits, but the steps
// amplify rounding.)
func TestShakespeareAsPyTorch(t *testing.T) { // without the race detector
	if thin.Race {
		t.Skip("has one rank alone: the race detector would have nothing to watch")
	}
	path := sample(t, "coriolanus.txt")
	const steps = 60
	cfg := DefaultConfig()
	cfg.Epochs, cfg.BatchSize = 1, 8
	cfg.Data.Kind, cfg.Data.Path, cfg.Data.Train = "text", path, rowRange(0, 8*steps)
	cfg.Model.Kind, cfg.Model.Layers, cfg.Model.Heads, cfg.Model.Width, cfg.Model.Context = "gpt", 2, 4, 64, 64
	cfg.Optimizer.Kind, cfg.Optimizer.LR, cfg.Optimizer.WeightDecay = "adamw", 0.003, 0.01
	cfg.Init = filepath.Join(t.TempDir(), "init.safetensors")
	writeInit(t, cfg, data.Spec{Symbols: 256, Classes: 256}, cfg.Init)

	got := complete(t, "local", 1, cfg, nil)
	want := runTorch(t, torchCase{cfg: cfg, world: 1, init: cfg.Init})[0]["float32"]
	if len(got.losses) != steps || len(want.Losses) != steps {
		t.Fatalf("%d and %d steps, want %d", len(got.losses), len(want.Losses), steps)
	}
	last, first, theirs := got.losses[steps-1], got.losses[0], want.Losses[steps-1]
	t.Logf("loss %.4f in the first step and %.4f in the last, PyTorch %.4f", first, last, theirs)
	// At first all 256 symbols are about equally likely: log 256 = 5.55.
	if math.Abs(last-theirs) > 0.02*theirs || theirs > 3.3 || math.Abs(first-math.Log(256)) > 0.1 {
		t.Errorf("loss %.4f in the first step and %.4f in the last, PyTorch %.4f", first, last, theirs)
	}
}
