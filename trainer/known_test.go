package trainer

import (
	"errors"
	"strings"
	"testing"
)

// A Result is the same on every rank.
func TestLocalSGDHasOneResult(t *testing.T) {
	cfg := deepJob()
	cfg.DDP.AverageEvery = 3
	world := trainOver(t, "local", 2, cfg, nil)
	if world[0].Result != world[1].Result {
		t.Errorf("rank 0 has %+v, rank 1 %+v", world[0].Result, world[1].Result)
	}
}

// A loss that is not a number ends all ranks, those too that have a finite one.
func TestLocalSGDThatDivergesOnOneRank(t *testing.T) {
	dir := t.TempDir()
	x := normals(1, 40*4)
	x[4*9] = 1e38 // a row of rank 1 in the second step; averages are taken after the first and the fifth
	writeNPY(t, dir, "x.npy", []int{40, 4}, x)
	writeNPY(t, dir, "y.npy", []int{40, 1}, normals(2, 40))
	cfg := deepJob()
	cfg.DDP.AverageEvery, cfg.Data.Shuffle, cfg.Model.Kind = 4, false, "dense"
	cfg.Data.Kind, cfg.Data.InputFile, cfg.Data.TargetFile = "npy", "x.npy", "y.npy"
	for i, r := range trainOver(t, "local", 2, cfg, func(_ int, _ *Config, env *Env) { env.WorkDir = dir }) {
		if !errors.Is(r.err, ErrDiverged) {
			t.Errorf("rank %d: error %v, want ErrDiverged", i, r.err)
		}
	}
}

// Between two averages ranks hold different parameters, which are neither evaluated nor saved.
func TestLocalSGDSavesAveragesOnly(t *testing.T) {
	cfg := deepJob()
	cfg.DDP.AverageEvery = 3 // after steps 1, 4, 7, 10 and at the ends of epochs, 6 and 12
	cfg.Data.Eval, cfg.Evaluate.EverySteps, cfg.Evaluate.Best = "0:8", 1, "loss"
	got := complete(t, "local", 2, cfg, nil)
	for _, step := range got.checkpoints.steps(t) {
		if step%3 != 1 && step%6 != 0 {
			t.Errorf("a checkpoint of step %d", step)
		}
	}
}

// The pass that went wrong need not be the step's last.
func TestTheLayerThatOverflowsInTheFirstPassIsNamed(t *testing.T) {
	overflow(t, 2, func(c *Config) { c.BatchSize, c.Accumulate, c.Data.Train = 2, 2, "4:48" })
}

// Replicas of one process work at the same time, and cannot share the sums over ranks.
func TestSyncBatchNormInReplicasIsRefused(t *testing.T) {
	cfg := deepJob()
	cfg.Mode, cfg.Replicas, cfg.DDP.SyncBatchNorm = "dp", 2, true
	if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), "ddp.sync_batch_norm") {
		t.Errorf("error %v, want one about ddp.sync_batch_norm", err)
	}
}

// The checkpoint of the best evaluation is made at the end of an epoch. Who goes on from there counts that evaluation once.
func TestResumeFromTheBestAfterACrash(t *testing.T) {
	t.Skip("known: endEpoch evaluates again after a resume at the end of an epoch, and keepBest counts that in best.since")
	cfg := deepJob()
	cfg.Epochs, cfg.Data.Eval, cfg.Evaluate.Best, cfg.Evaluate.Patience = 10, "0:7", "loss", 3
	cfg.Optimizer.LR = 1e-30 // nothing gets better after the first epoch
	straight := complete(t, "local", 2, cfg, nil)
	if straight.Epochs != 4 {
		t.Fatalf("%+v, want 4 epochs: the best and 3 that are not better", straight.Result)
	}
	c := newCheckpoints()
	for i, r := range trainOver(t, "local", 2, cfg, func(rank int, _ *Config, env *Env) {
		env.Checkpoints = c.open(t)
		if out := env.Out.(*output); rank == 0 {
			env.Progress = func(p Progress) {
				if p.Epoch == 1 {
					out.kill()
				}
			}
		}
	}) {
		if r.err == nil {
			t.Fatalf("rank %d noticed nothing", i)
		}
	}
	if got := c.steps(t); len(got) != 1 {
		t.Fatalf("checkpoints of steps %v, want that of the first epoch", got)
	}
	resumed := completeIn(t, c, "local", 2, cfg, func(_ int, _ *Config, env *Env) { env.Resume = true })
	sameState(t, resumed.state, straight.state)
}
