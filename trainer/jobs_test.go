package trainer

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"ddpbatch/internal/testkit/npy"
)

// imageJob is a CNN with batch normalization on 48 random images of 5 classes.
func imageJob(t testing.TB) (dir string, cfg Config) {
	t.Helper()
	const rows = 48
	dir = t.TempDir()
	writeNPY(t, dir, "x.npy", []int{rows, 2, 9, 8}, normals(3, rows*2*9*8))
	writeNPY(t, dir, "y.npy", []int{rows}, classesOf(4, rows, 5))
	cfg = DefaultConfig()
	cfg.Epochs, cfg.BatchSize, cfg.Optimizer.LR = 2, 4, 0.05
	cfg.Data.Kind, cfg.Data.InputFile, cfg.Data.TargetFile = "npy", "x.npy", "y.npy"
	cfg.Model.Kind, cfg.Model.Channels, cfg.Model.Hidden, cfg.Model.BatchNorm = "cnn", []int{4, 6}, []int{10}, true
	return dir, cfg
}

// textJob is a GPT with 2 blocks on 48 rows of text.
func textJob(t testing.TB) (dir string, cfg Config) {
	t.Helper()
	dir = t.TempDir()
	text := bytes.Repeat([]byte("The quick brown fox jumps over the lazy dog. \xff"), 13)[:48*12+1]
	if err := os.WriteFile(filepath.Join(dir, "text"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	cfg = DefaultConfig()
	cfg.Epochs, cfg.BatchSize = 2, 4
	cfg.Data.Kind, cfg.Data.Path = "text", "text"
	cfg.Model.Kind, cfg.Model.Layers, cfg.Model.Heads, cfg.Model.Width, cfg.Model.Context = "gpt", 2, 2, 16, 12
	return dir, cfg
}

// deepJob is an MLP of four layers on 48 rows of generated data.
func deepJob() Config {
	cfg := DefaultConfig()
	cfg.Epochs, cfg.BatchSize, cfg.Loss, cfg.Seed = 2, 4, "mse", 3
	cfg.Model.Hidden, cfg.Model.Activation = []int{9, 8, 7}, "tanh"
	cfg.Data.Kind, cfg.Data.Rows, cfg.Data.Inputs, cfg.Data.Outputs, cfg.Data.Noise = "generated", 48, 5, 3, 0.1
	cfg.Optimizer.Momentum = 0.9
	return cfg
}

// writeNPY writes an array to a file in dir.
func writeNPY[T float32 | int64](t testing.TB, dir, name string, shape []int, v []T) {
	t.Helper()
	npy.Write(t, filepath.Join(dir, name), shape, v)
}
