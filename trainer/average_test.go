package trainer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"ddpbatch/mpi"
	"ddpbatch/trainer/ddp"
)

// With local SGD, every rank has the same Result.
func TestLocalSGDHasOneResult(t *testing.T) {
	cfg := deepJob()
	cfg.DDP.AverageEvery = 3
	world := trainOver(t, "local", 2, cfg, nil)
	if world[0].Result != world[1].Result {
		t.Errorf("rank 0 has %+v, rank 1 %+v", world[0].Result, world[1].Result)
	}
}

// A loss that is not finite on one rank ends all ranks, even those whose loss is finite.
func TestLocalSGDEndsAllRanksWhenOneDiverges(t *testing.T) {
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

// Parameters are evaluated and saved only when they are averages. Between two averages they differ between ranks.
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

// A loss that is not finite is noticed when the ranks average. The error names the step that had it, whichever rank that was. Until then
// no number that is not finite is written or printed.
func TestLocalSGDNamesTheStepThatDiverged(t *testing.T) {
	for name, test := range map[string]struct {
		row    int // in the fifth step of 4 rows
		stages int
	}{"on rank 0": {16, 1}, "on rank 1": {17, 1}, "in the first pipeline": {16, 2}, "in the second pipeline": {17, 2}} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			const rows, inputs = 48, 5
			x := normals(1, rows*inputs)
			for i := range inputs {
				x[test.row*inputs+i] = 3e38
			}
			writeNPY(t, dir, "x.npy", []int{rows, inputs}, x)
			writeNPY(t, dir, "y.npy", []int{rows, 3}, normals(2, rows*3))
			cfg := deepJob()
			cfg.Model.Activation, cfg.Data.Shuffle, cfg.Optimizer.LR, cfg.Init = "relu", false, 1e-9, "init"
			cfg.Data.Kind, cfg.Data.InputFile, cfg.Data.TargetFile = "npy", "x.npy", "y.npy"
			cfg.BatchSize, cfg.DDP.AverageEvery, cfg.Pipeline = 2, 100, test.stages
			writeInit(t, cfg, generatedSpec(cfg), filepath.Join(dir, "init"))
			ones(t, filepath.Join(dir, "init")) // 5 numbers of 3e38 add up to infinity

			var metrics, log bytes.Buffer
			shown := 0
			world := trainOver(t, "local", 2*test.stages, cfg, func(rank int, _ *Config, env *Env) {
				if env.WorkDir = dir; rank > 0 {
					return
				}
				env.Metrics, env.Log = &metrics, slog.New(slog.NewTextHandler(&log, nil))
				env.onStep = func(p stepDone) {
					if shown++; !finite(p.loss) {
						t.Errorf("the loss of step %d is shown as %v", p.step, p.loss)
					}
				}
			})
			wantErrors(t, world, "training diverged at step 5 (epoch 0)")
			for i, r := range world {
				if !errors.Is(r.err, ErrDiverged) {
					t.Errorf("rank %d: error %v is not ErrDiverged", i, r.err)
				}
			}
			if strings.Contains(log.String(), "metrics cannot be written") {
				t.Error(log.String())
			}
			if shown < 4 {
				t.Errorf("%d steps were shown", shown)
			}
		})
	}
}

// localSteps takes the steps of one epoch on 2 ranks. After each step it calls only check, on each rank.
func localSteps(t *testing.T, cfg Config, check func(ctx context.Context, tr *trainer) error) []error {
	t.Helper()
	return onRanks(t, "local", 2, func(ctx context.Context, comm *mpi.Comm) error {
		tr := newTrainer(cfg, Env{Comm: comm, Clock: ticking()})
		defer tr.close()
		if err := tr.setUp(ctx); err != nil {
			return err
		}
		tr.beginEpoch()
		for tr.stepsLeft() > 0 {
			if err := tr.step(ctx); err != nil {
				return err
			}
			if err := check(ctx, tr); err != nil {
				return err
			}
		}
		return nil
	})
}

// Parameters are compared at the first average after each multiple of check_every_steps, even if no average is at such a multiple.
func TestLocalSGDFindsDrift(t *testing.T) {
	cfg := deepJob()
	cfg.BatchSize, cfg.DDP.AverageEvery, cfg.DDP.CheckEverySteps = 1, 2, 10 // 24 steps, averages after 1, 3, 5, 7, 9, 11, ...
	for i, err := range localSteps(t, cfg, func(ctx context.Context, tr *trainer) error {
		if err := tr.averageParameters(ctx); err != nil {
			return err
		}
		if tr.inSync && tr.env.Comm.Rank() == 1 {
			tr.params[0].Value[0]++ // differs from the average on the other rank
		}
		return tr.compareParameters(ctx)
	}) {
		var drift *ddp.DriftError
		if !errors.As(err, &drift) || drift.Step != 11 || drift.Param != "0.weight" {
			t.Errorf("rank %d: %v, want drift in 0.weight after step 11", i, err)
		}
	}
}

// Between two averages ranks do not communicate, and the metrics report no time for communication.
func TestLocalSGDStepsWithoutCommunication(t *testing.T) {
	cfg := deepJob()
	cfg.BatchSize, cfg.DDP.AverageEvery, cfg.DDP.AverageWarmup = 1, 100, 2 // of 24 steps only the first three communicate
	for i, err := range localSteps(t, cfg, func(ctx context.Context, tr *trainer) error {
		if tr.env.Comm.Rank() == 0 && tr.at.Step == 2 && tr.epoch.comm == 0 {
			return errors.New("steps of all ranks took no time to communicate")
		}
		if tr.env.Comm.Rank() == 0 && tr.at.Step > 3 && (tr.sinceMetrics.comm != 0 || tr.sinceMetrics.commShare() != 0) {
			return fmt.Errorf("step %d communicated for %v", tr.at.Step, tr.sinceMetrics.comm)
		}
		if _, err := tr.afterStep(ctx); err != nil {
			return err
		}
		tr.sinceMetrics = meter{}
		return nil
	}) {
		if err != nil {
			t.Errorf("rank %d: %v", i, err)
		}
	}
}
