package trainer

import (
	"context"
	"strings"
	"testing"

	"ddpbatch/checkpoint"
	"ddpbatch/mpi"
)

// Statistics over all ranks are those of the whole batch even if some ranks have fewer rows, or no rows, in a step.
func TestSyncBatchNormCountsUnevenRows(t *testing.T) {
	dir, cfg := imageJob(t)
	cfg.DDP.SyncBatchNorm, cfg.Data.Remainder, cfg.Data.Train = true, "uneven", "0:41"
	inDir := func(_ int, _ *Config, env *Env) { env.WorkDir = dir }
	cfg.BatchSize = 12
	want := complete(t, "local", 1, cfg, inDir) // the fourth step has only 5 rows
	cfg.BatchSize = 3
	nearModel(t, complete(t, "local", 4, cfg, inDir).state, want.state, sumsInOtherOrder)

	cfg.BatchSize, cfg.Data.Train = 10, "0:41" // the fifth step has only 1 row
	want = complete(t, "local", 1, cfg, inDir)
	cfg.BatchSize = 5
	nearModel(t, complete(t, "local", 2, cfg, inDir).state, want.state, sumsInOtherOrder)
}

// Steps whose gradients overflow float16 are skipped until the loss scale is small enough. All ranks have the same scale.
// (TestResumeRemembersEverything shows that a resume keeps it.)
func TestLossScaleFallsUntilGradientsFit(t *testing.T) {
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
			// The scale halves after a skipped step, and only then.
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

// sameValues reports whether two states have the same parameters.
func sameValues(t *testing.T, a, b *checkpoint.State) bool {
	t.Helper()
	for _, tensor := range a.Tensors {
		if strings.HasPrefix(tensor.Name, "model.") && distance(floatsOf(t, a, tensor.Name), floatsOf(t, b, tensor.Name)) != 0 {
			return false
		}
	}
	return true
}

// However a batch is split, dropout drops other units in each part. So two equal rows do not drop the same units as one of them alone.
func TestDropoutDiffersFromPartToPart(t *testing.T) {
	dir := t.TempDir()
	x := normals(1, 40)
	writeNPY(t, dir, "x.npy", []int{2, 40}, append(x, x...))
	writeNPY(t, dir, "y.npy", []int{2, 1}, []float32{3, 3})
	for name, test := range map[string]struct {
		world  int // ranks for one row
		change func(*Config)
		split  func(*Config) // for two rows
		ranks  int           // ranks for two rows
	}{
		"rows":          {1, func(*Config) {}, func(c *Config) { c.BatchSize = 2 }, 1},
		"ranks":         {1, func(*Config) {}, func(*Config) {}, 2},
		"passes":        {1, func(*Config) {}, func(c *Config) { c.Accumulate = 2 }, 1},
		"replicas":      {1, func(c *Config) { c.Mode, c.Replicas = "dp", 2 }, func(c *Config) { c.BatchSize = 2 }, 1},
		"micro-batches": {2, func(c *Config) { c.Pipeline = 2 }, func(c *Config) { c.BatchSize = 2 }, 2},
		"steps":         {1, func(*Config) {}, func(c *Config) { c.Optimizer.LR, c.Epochs = c.Optimizer.LR/2, 2 }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := deepJob()
			cfg.Epochs, cfg.BatchSize, cfg.Model.Hidden, cfg.Model.Dropout = 1, 1, []int{40}, 0.5
			cfg.Data.Kind, cfg.Data.InputFile, cfg.Data.TargetFile, cfg.Data.Train = "npy", "x.npy", "y.npy", "0:1"
			cfg.Optimizer.Momentum, cfg.Optimizer.LR = 0, 1e-3
			inDir := func(_ int, _ *Config, env *Env) { env.WorkDir = dir }
			test.change(&cfg)
			one := complete(t, "local", test.world, cfg, inDir)
			if cfg.Data.Train = "0:2"; name == "steps" {
				cfg.Data.Train = "0:1"
			}
			test.split(&cfg)
			two := complete(t, "local", test.ranks, cfg, inDir)
			// A unit whose input weights did not change was dropped.
			if dropped(t, one.state, cfg) == dropped(t, two.state, cfg) {
				t.Error("the same units were dropped")
			}
		})
	}
}

// dropped returns a byte for each hidden unit: 'x' if training has changed its input weights, '.' if the unit was dropped.
func dropped(t *testing.T, s *checkpoint.State, cfg Config) string {
	t.Helper()
	model, err := newModel(cfg.Model, specOf(40, 1), cfg.Seed, nil)
	if err != nil {
		t.Fatal(err)
	}
	before, after := model.Params()[0].Value, floatsOf(t, s, "model.0.weight")
	units := make([]byte, 40)
	for i := range units {
		units[i] = 'x'
		if distance(before[i*40:][:40], after[i*40:][:40]) == 0 {
			units[i] = '.'
		}
	}
	if all := string(units); strings.Count(all, ".") == 0 || strings.Count(all, "x") == 0 {
		t.Fatalf("of the units %s none, or all, were dropped", all)
	}
	return string(units)
}

// PowerSGD compresses nothing before its first step.
func TestPowerSGDBeginsLater(t *testing.T) {
	cfg := deepJob() // 12 steps
	cfg.DDP.Rank = 1
	run := func(compress string, start int) *checkpoint.State {
		cfg := cfg
		cfg.DDP.Compress, cfg.DDP.StartStep = compress, start
		return complete(t, "local", 2, cfg, nil).state
	}
	plain := run("none", 0)
	if !sameValues(t, run("powersgd", 12), plain) {
		t.Error("gradients were compressed before the first step of PowerSGD")
	}
	if sameValues(t, run("powersgd", 11), plain) {
		t.Error("gradients were not compressed in the first step of PowerSGD")
	}
}

// The copies of a stage for its micro-batches share the memory of parameters, gradients and buffers from the beginning, so that a rank
// never holds as many models as micro-batches.
func TestMicroBatchesShareParameters(t *testing.T) {
	dir, cfg := imageJob(t)
	cfg.Pipeline, cfg.MicroBatches = 2, 4
	for rank, err := range onRanks(t, "local", 2, func(ctx context.Context, comm *mpi.Comm) error {
		tr := newTrainer(cfg, Env{Comm: comm, WorkDir: dir})
		defer tr.close()
		if err := tr.setUp(ctx); err != nil {
			return err
		}
		fresh, err := tr.newEngine()
		if err != nil {
			return err
		}
		stage := fresh.(*pipeline)
		if len(stage.micro) != 4 {
			t.Errorf("%d copies for 4 micro-batches", len(stage.micro))
		}
		params, buffers := stage.model().Params(), stage.model().Buffers()
		for i, r := range stage.micro[1:] {
			for j, p := range r.layers.Params() {
				if &p.Value[0] != &params[j].Value[0] || &p.Grad[0] != &params[j].Grad[0] {
					t.Errorf("rank %d: copy %d has a %s of its own", comm.Rank(), i+1, p.Name)
				}
			}
			for j, b := range r.layers.Buffers() {
				if &b.Value[0] != &buffers[j].Value[0] {
					t.Errorf("rank %d: copy %d has a %s of its own", comm.Rank(), i+1, b.Name)
				}
			}
		}
		return comm.Barrier(ctx)
	}) {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}
