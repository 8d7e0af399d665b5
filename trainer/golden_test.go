package trainer

import (
	"fmt"
	"math"
	"testing"

	"ddpbatch/internal/testkit/golden"
)

// The losses, gradients and final parameters of PyTorch's DistributedDataParallel, from files that a user would have.
func TestGolden(t *testing.T) {
	for _, world := range []int{1, 2} {
		t.Run(fmt.Sprintf("world %d", world), func(t *testing.T) {
			g := golden.Read(t, world)
			dir := t.TempDir()
			g.Write(t, dir)
			cfg := DefaultConfig()
			cfg.Epochs, cfg.BatchSize, cfg.Loss, cfg.Init = 1, 8/world, "mse", "init.safetensors"
			cfg.Model.Hidden = []int{8}
			cfg.Data.Kind, cfg.Data.InputFile, cfg.Data.TargetFile = "npy", "x.npy", "y.npy"
			cfg.Data.Shuffle, cfg.Data.Train = false, "0:40"
			cfg.Optimizer.LR, cfg.Optimizer.Momentum = 0.1, 0.9

			got := complete(t, "tcp", world, cfg, func(_ int, _ *Config, env *Env) { env.WorkDir, env.EverySteps = dir, 1 })
			for s, step := range g.Steps {
				if math.Abs(got.losses[s]-step.Loss()) > golden.Tolerance {
					t.Errorf("step %d: loss %v, PyTorch's is %v", s+1, got.losses[s], step.Loss())
				}
			}
			for i, name := range golden.Names() {
				if d := distance(floatsOf(t, got.state, "model."+name), g.Final[i].Data); d > golden.Tolerance {
					t.Errorf("%s differs by %v in the end", name, d)
				}
				for s := range int64(2) {
					if d := distance(gradient(t, got.checkpoints, s+1, name), g.Steps[s].Grads[i]); d > golden.Tolerance {
						t.Errorf("the gradient of %s differs by %v in step %d", name, d, s+1)
					}
				}
			}
		})
	}
}

// gradient is that of a step, by what it did to SGD's momentum v, which is 0.9 v + the gradient after it.
func gradient(t testing.TB, c checkpoints, step int64, name string) []float32 {
	t.Helper()
	momentum := func(step int64) []float32 {
		s, err := c.open(t).Load(t.Context(), step)
		if err != nil {
			t.Fatal(err)
		}
		return floatsOf(t, s, "optimizer.momentum_buffer."+name)
	}
	g := momentum(step)
	if step > 1 {
		for i, v := range momentum(step - 1) {
			g[i] -= 0.9 * v
		}
	}
	return g
}
