package trainer

import (
	"errors"
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
	cfg.Data.Train, cfg.Data.Eval, cfg.Evaluate.EverySteps, cfg.Evaluate.Best = "0:48", "0:8", 1, "loss"
	got := complete(t, "local", 2, cfg, nil)
	for _, step := range got.checkpoints.steps(t) {
		if step%3 != 1 && step%6 != 0 {
			t.Errorf("a checkpoint of step %d", step)
		}
	}
}
