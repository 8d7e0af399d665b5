package trainer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"ddpbatch/checkpoint"
	"ddpbatch/mpi"
	"ddpbatch/trainer/ddp"
)

// unitRows is the number of rows of markedJob. It is a prime number, so that no number of ranks divides it.
const unitRows = 23

// markedJob returns a job whose checkpoints show which rows were trained on. Input i of row i is 1 and all other inputs are 0, so that a
// step of one linear layer, without momentum, changes weight i only if row i is in the step.
func markedJob(t testing.TB) (dir string, cfg Config) {
	t.Helper()
	dir = t.TempDir()
	x, y := make([]float32, unitRows*unitRows), make([]float32, unitRows)
	for i := range unitRows {
		x[i*unitRows+i], y[i] = 1, 100
	}
	writeNPY(t, dir, "x.npy", []int{unitRows, unitRows}, x)
	writeNPY(t, dir, "y.npy", []int{unitRows, 1}, y)
	cfg = DefaultConfig()
	cfg.Epochs, cfg.BatchSize, cfg.Loss, cfg.Model.Kind = 2, 2, "mse", "dense"
	cfg.Data.Kind, cfg.Data.InputFile, cfg.Data.TargetFile, cfg.Data.Remainder = "npy", "x.npy", "y.npy", "uneven"
	cfg.Optimizer.LR = 0.01
	return dir, cfg
}

// seen counts how often each row was trained on in an epoch.
type seen map[int]int

// rowsSeen returns the rows that each epoch has trained on. It compares the checkpoints in c, which must have one of every step.
func rowsSeen(t testing.TB, c checkpoints, cfg Config, dir string) []seen {
	t.Helper()
	start := complete(t, "local", 1, cfg, func(_ int, cfg *Config, env *Env) {
		cfg.Optimizer.LR, cfg.Epochs, env.WorkDir = 1e-30, 1, dir
	})
	before, at := floatsOf(t, start.state, "model.0.weight"), position{}
	epochs := make([]seen, cfg.Epochs)
	for _, step := range c.steps(t) {
		s, err := c.open(t).Load(t.Context(), step)
		if err != nil {
			t.Fatal(err)
		}
		var now position
		if err := json.Unmarshal(s.Values[keyPosition], &now); err != nil {
			t.Fatal(err)
		}
		if now.Step != at.Step+1 {
			t.Fatalf("step %d follows step %d", now.Step, at.Step)
		}
		if now.Epoch != at.Epoch {
			at.Rows = 0
		}
		weights := floatsOf(t, s, "model.0.weight")
		changed := 0
		for row := range unitRows {
			if weights[row] != before[row] {
				changed++
				if epochs[now.Epoch] == nil {
					epochs[now.Epoch] = seen{}
				}
				epochs[now.Epoch][row]++
			}
		}
		if dealt := now.Rows - at.Rows; changed != dealt {
			t.Errorf("step %d was dealt %d rows, and %d were trained on", step, dealt, changed)
		}
		before, at = weights, now
	}
	return epochs
}

// goOn trains from the newest checkpoint in c, if there is one, and stops after k more steps. If k is 0, it trains to the end.
func goOn(t testing.TB, c checkpoints, world int, cfg Config, dir string, k int64) training {
	t.Helper()
	stop, taken := make(chan struct{}), int64(0)
	if k == 1 {
		close(stop)
	}
	return completeIn(t, c, "local", world, cfg, func(rank int, _ *Config, env *Env) {
		env.WorkDir, env.Resume, env.EverySteps, env.Async, env.Delta = dir, true, 1, true, 2
		if rank == 0 {
			env.Stop = stop
			progress := env.onStep
			env.onStep = func(p stepDone) {
				progress(p)
				if taken++; taken == k-1 {
					close(stop)
				}
			}
		}
	})
}

// A run whose number of ranks changes in the middle of an epoch trains on every row exactly once in each epoch.
func TestEveryRowIsTrainedOnAsRanksComeAndGo(t *testing.T) {
	dir, cfg := markedJob(t)
	for before := 1; before <= 4; before++ {
		for after := 1; after <= 4; after++ {
			t.Run(fmt.Sprintf("from %d to %d", before, after), func(t *testing.T) {
				c := newCheckpoints()
				goOn(t, c, before, cfg, dir, 1)
				goOn(t, c, after, cfg, dir, 2) // 4 ranks reach the end of the epoch
				goOn(t, c, before, cfg, dir, 0)
				for epoch, rows := range rowsSeen(t, c, cfg, dir) {
					for row := range unitRows {
						if rows[row] != 1 {
							t.Errorf("epoch %d: row %d was trained on %d times", epoch, row, rows[row])
						}
					}
				}
			})
		}
	}
}

// With "pad" some rows are repeated, and with "drop" some are left out: in each epoch fewer than the last world has ranks.
func TestEqualSharesHoldAsRanksComeAndGo(t *testing.T) {
	for _, remainder := range []string{"pad", "drop"} {
		t.Run(remainder, func(t *testing.T) {
			dir, cfg := markedJob(t)
			cfg.BatchSize, cfg.Data.Remainder = 1, remainder
			c := newCheckpoints()
			goOn(t, c, 2, cfg, dir, 3)
			goOn(t, c, 4, cfg, dir, 2)
			goOn(t, c, 3, cfg, dir, 0)
			for epoch, rows := range rowsSeen(t, c, cfg, dir) {
				other := 0
				for row := range unitRows {
					if n := rows[row]; remainder == "pad" && n < 1 || remainder == "drop" && n > 1 {
						t.Errorf("epoch %d: row %d was trained on %d times", epoch, row, n)
					} else if n != 1 {
						other++
					}
				}
				if other > 2 { // at most 2 of the last 3 ranks can lack a row
					t.Errorf("epoch %d: %d rows were not trained on once", epoch, other)
				}
			}
		})
	}
}

// The state of an optimizer may be split over any number of ranks, or not at all, from one attempt to the next.
func TestZeroMayComeAndGo(t *testing.T) {
	cfg := deepJob()
	everything(&cfg)
	worlds := []int{1, 3, 2, 4}
	run := func(split func(attempt int) bool) *checkpoint.State {
		c := newCheckpoints()
		var last training
		for i, world := range worlds {
			cfg := cfg
			cfg.Optimizer.Zero = split(i)
			k := int64(2)
			if i == len(worlds)-1 {
				k = 0
			}
			last = goOn(t, c, world, cfg, "", k)
		}
		// The order of tensors depends on which rank had them.
		slices.SortFunc(last.state.Tensors, func(a, b checkpoint.Tensor) int { return strings.Compare(a.Name, b.Name) })
		return last.state
	}
	want := run(func(int) bool { return false })
	sameState(t, run(func(int) bool { return true }), want)
	sameState(t, run(func(attempt int) bool { return attempt%2 == 0 }), want)
}

// A model may be cut into stages, and put together again, from one attempt to the next.
func TestPipelinesMayComeAndGo(t *testing.T) {
	jobs := map[string]func() (string, Config){
		"mlp": func() (string, Config) { return "", deepJob() },
		"gpt": func() (string, Config) { return textJob(t) },
		"cnn": func() (string, Config) {
			dir, cfg := imageJob(t)
			cfg.Model.BatchNorm = false // its statistics would be those of a micro-batch
			return dir, cfg
		},
	}
	for name, job := range jobs {
		t.Run(name, func(t *testing.T) {
			dir, cfg := job()
			cfg.Optimizer.Momentum = 0.9
			straight := goOn(t, newCheckpoints(), 1, cfg, dir, 0)
			c := newCheckpoints()
			goOn(t, c, 1, cfg, dir, 2)
			for _, stages := range []int{2, 3} {
				cut := cfg
				cut.Pipeline = stages
				goOn(t, c, stages, cut, dir, 3)
			}
			cut := cfg
			cut.Pipeline, cut.Optimizer.Zero = 2, true
			goOn(t, c, 2, cut, dir, 2)
			got := goOn(t, c, 1, cfg, dir, 0)
			if got.Steps != straight.Steps {
				t.Errorf("%d steps, want %d", got.Steps, straight.Steps)
			}
			nearModel(t, got.state, straight.state, sumsInOtherOrder)
		})
	}
}

// The residuals of compression are not lost when the number of ranks changes: every rank begins with the mean of the old ranks' residuals.
func TestResidualsOfRanksThatAreGoneAreKept(t *testing.T) {
	for _, compress := range []string{"int8", "powersgd"} {
		for before := 1; before <= 4; before++ {
			for after := 1; after <= 4; after++ {
				t.Run(fmt.Sprintf("%s from %d to %d", compress, before, after), func(t *testing.T) {
					cfg := deepJob()
					cfg.DDP.Compress, cfg.DDP.StartStep = compress, 1
					c := newCheckpoints()
					old := goOn(t, c, before, cfg, "", 3).state
					got := make([][]ddp.State, after)
					errs := onRanks(t, "local", after, func(ctx context.Context, comm *mpi.Comm) error {
						tr := newTrainer(cfg, Env{Comm: comm, Checkpoints: c.open(t), FS: c.fs, Resume: true})
						defer tr.close()
						if err := tr.setUp(ctx); err != nil {
							return err
						}
						got[comm.Rank()] = tr.hookState()
						return comm.Barrier(ctx)
					})
					if err := errors.Join(errs...); err != nil {
						t.Fatal(err)
					}
					for rank := range after {
						checkResiduals(t, got[rank], old, rank, before, after)
					}
				})
			}
		}
	}
}

// checkResiduals compares the hook state with which a rank of a new world begins with the state that the old ranks had at the end.
func checkResiduals(t *testing.T, got []ddp.State, old *checkpoint.State, rank, before, after int) {
	t.Helper()
	residuals := 0
	for _, s := range got {
		want := floatsOf(t, old, hookName(min(rank, before-1), s.Name))
		if strings.HasPrefix(s.Name, "residual.") {
			residuals++
			if !slices.ContainsFunc(want, func(v float32) bool { return v != 0 }) {
				t.Errorf("%s was 0: nothing to see", s.Name)
			}
		}
		if before != after {
			clear(want)
			for other := range before {
				for i, v := range floatsOf(t, old, hookName(other, s.Name)) {
					want[i] += v / float32(before)
				}
			}
		}
		// The same few additions are made in another order.
		if d := distance(s.Value, want); d > 1e-6 {
			t.Errorf("rank %d: %s differs by %v", rank, s.Name, d)
		}
	}
	if residuals == 0 {
		t.Error("the hook keeps no residuals")
	}
}

// A job that resumes with fewer epochs than it has trained is done, even if its schedule depends on the number of all steps.
func TestFewerEpochsAreDone(t *testing.T) {
	for _, kind := range []string{"cosine", "one_cycle", "linear"} {
		for _, stop := range []int64{0, 8} { // at the end of 6 epochs of 3 steps, and in the third epoch
			cfg := deepJob()
			cfg.Schedule.Kind, cfg.Epochs = kind, 6
			c := newCheckpoints()
			before := goOn(t, c, 4, cfg, "", stop)
			cfg.Epochs = 2
			after := goOn(t, c, 1, cfg, "", 0)
			if after.Stopped || after.Steps != before.Steps || after.Resumed != before.Steps ||
				after.Epochs != before.Epochs || after.losses != nil {
				t.Errorf("%s: %+v after %+v, want it done", kind, after.Result, before.Result)
			}
		}
	}
}
