package trainer

import "testing"

// Statistics over all ranks are those of the whole batch, too, where some ranks have fewer rows, or none, in a step.
func TestSyncBatchNormWithUnevenRows(t *testing.T) {
	dir, cfg := imageJob(t)
	cfg.DDP.SyncBatchNorm, cfg.Data.Remainder, cfg.Data.Train = true, "uneven", "0:41"
	inDir := func(_ int, _ *Config, env *Env) { env.WorkDir = dir }
	cfg.BatchSize = 12
	want := complete(t, "local", 1, cfg, inDir) // the fourth step has 5 rows
	cfg.BatchSize = 3
	nearModel(t, complete(t, "local", 4, cfg, inDir).state, want.state, sumsInOtherOrder)

	cfg.BatchSize, cfg.Data.Train = 10, "0:41" // the fifth has 1
	want = complete(t, "local", 1, cfg, inDir)
	cfg.BatchSize = 5
	nearModel(t, complete(t, "local", 2, cfg, inDir).state, want.state, sumsInOtherOrder)
}

// Gradients that overflow float16 cost some steps, until the loss scale is small enough; ranks agree on it. (That it is remembered
// is TestResumeRemembersEverything's to show.)
func TestLossScaleFalls(t *testing.T) {
	cfg := deepJob()
	cfg.Precision, cfg.Data.Noise, cfg.Optimizer.Momentum = "float16", 40, 0
	for _, world := range []int{1, 3} {
		got := complete(t, "local", world, cfg, func(_ int, _ *Config, env *Env) { env.EverySteps = 1 })
		start := complete(t, "local", world, cfg, func(_ int, cfg *Config, _ *Env) { cfg.Precision, cfg.Optimizer.LR = "float32", 1e-30 })
		before, scale := start.state, float32(65536)
		skipped := 0
		for _, step := range got.checkpoints.steps(t) {
			s, err := got.checkpoints.open(t).Load(t.Context(), step)
			if err != nil {
				t.Fatal(err)
			}
			moved := distance(floatsOf(t, s, "model.6.bias"), floatsOf(t, before, "model.6.bias")) != 0
			now := floatsOf(t, s, "optimizer.loss_scaler.scale")[0]
			if !moved {
				skipped++
			}
			// The scale halves after a step that was skipped, and only then.
			if moved && now != scale || !moved && now != scale/2 {
				t.Errorf("world %d, step %d: moved is %v, and the scale goes from %v to %v", world, step, moved, scale, now)
			}
			before, scale = s, now
		}
		if steps := len(got.losses); skipped == 0 || skipped == steps {
			t.Errorf("world %d: %d of %d steps were skipped", world, skipped, steps)
		}
	}
}
