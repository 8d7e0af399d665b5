package trainer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/testkit/thin"
	"ddpbatch/internal/testkit/vfstest"
	"ddpbatch/mpi"
)

// stopAfter returns a channel that progress closes when rank 0 has taken step k, so that step k+1 is
// the last. For k = 0 the channel is closed already.
func stopAfter(k int64) (stop chan struct{}, progress func(stepDone)) {
	stop = make(chan struct{})
	if k == 0 {
		close(stop)
	}
	return stop, func(p stepDone) {
		if p.step == k {
			close(stop)
		}
	}
}

// sameState compares all tensors bit for bit, and the positions.
func sameState(t *testing.T, got, want *checkpoint.State) {
	t.Helper()
	if got.Step != want.Step || string(got.Values[keyPosition]) != string(want.Values[keyPosition]) {
		t.Errorf("step %d at %s, want step %d at %s", got.Step, got.Values[keyPosition], want.Step, want.Values[keyPosition])
	}
	if len(got.Tensors) != len(want.Tensors) {
		t.Fatalf("%d tensors, want %d", len(got.Tensors), len(want.Tensors))
	}
	for i, tensor := range want.Tensors {
		if got.Tensors[i].Name != tensor.Name || string(got.Tensors[i].Data) != string(tensor.Data) {
			t.Errorf("%s differs from %s of the run that was never stopped", got.Tensors[i].Name, tensor.Name)
		}
	}
}

// A run of 20 steps that is stopped after any step and resumed ends with the same bytes as a run
// that never stopped.
func TestResumeAtEveryStepGivesTheSameBytes(t *testing.T) { // also without the race detector
	const epochs, steps = 4, 5
	for _, size := range []int{1, 2, 4} {
		t.Run(fmt.Sprintf("world %d", size), func(t *testing.T) {
			cfg := small(size, epochs, steps)
			straight := newCheckpoints()
			whole := mustTrain(t, size, cfg, func(_ int, _ *Config, env *Env) { env.Checkpoints, env.FS = straight.open(t), straight.fs })
			want := straight.latest(t)
			if want.Step != epochs*steps || len(want.Tensors) != 8 {
				t.Fatalf("a straight run saved step %d and %d tensors, want 20, and 4 parameters with their momentum",
					want.Step, len(want.Tensors))
			}
			for k := int64(1); k < epochs*steps; k += int64(thin.Step(3)) {
				c := newCheckpoints()
				stop, progress := stopAfter(k - 1)
				stopped := mustTrain(t, size, cfg, func(rank int, _ *Config, env *Env) {
					env.Checkpoints, env.FS = c.open(t), c.fs
					// It is enough to ask one rank to stop: before the first step the last rank, later rank 0.
					if rank == 0 {
						env.onStep = progress
					}
					if rank == 0 && k > 1 || rank == size-1 && k == 1 {
						env.Stop = stop
					}
				})
				if r := stopped[0].Result; !r.Stopped || r.Steps != k {
					t.Fatalf("asked to stop in step %d: %+v", k, r)
				}
				resumed := mustTrain(t, size, cfg, func(_ int, _ *Config, env *Env) {
					env.Checkpoints, env.FS, env.Resume = c.open(t), c.fs, true
				})
				r := resumed[0].Result
				if r.Resumed != k || r.Stopped || r.Loss != whole[0].Loss || r.EvalLoss != whole[0].EvalLoss {
					t.Errorf("resumed from step %d: %+v, want the losses of %+v", k, r, whole[0].Result)
				}
				sameState(t, c.latest(t), want)
			}
		})
	}
}

// A run that dies between checkpoints loses only the steps since the last checkpoint.
func TestResumeAfterACrashLosesFewSteps(t *testing.T) {
	cfg := small(2, 4, 5)
	straight, c := newCheckpoints(), newCheckpoints()
	mustTrain(t, 2, cfg, func(_ int, _ *Config, env *Env) { env.Checkpoints, env.FS = straight.open(t), straight.fs })

	for i, r := range train(t, 2, cfg, func(rank int, _ *Config, env *Env) {
		env.Checkpoints, env.FS, env.EverySteps = c.open(t), c.fs, 3
		if out := env.Out.(*output); rank == 0 {
			env.onStep = func(p stepDone) {
				if p.step == 11 {
					out.kill()
				}
			}
		}
	}) {
		if r.err == nil {
			t.Errorf("rank %d noticed nothing", i)
		}
	}
	if got := c.steps(t); !slices.Equal(got, []int64{3, 6, 9}) {
		t.Fatalf("checkpoints of steps %v, want 3, 6 and 9", got)
	}
	resumed := mustTrain(t, 2, cfg, func(_ int, _ *Config, env *Env) { env.Checkpoints, env.FS, env.Resume = c.open(t), c.fs, true })
	if r := resumed[0].Result; r.Resumed != 9 {
		t.Errorf("%+v, want a resume from step 9", r)
	}
	sameState(t, c.latest(t), straight.latest(t))
}

// Only rank 0's Checkpoints, Resume and EverySteps count.
func TestOnlyRankZeroChooses(t *testing.T) {
	cfg := small(2, 2, 5)
	c := newCheckpoints()
	mustTrain(t, 2, cfg, func(_ int, _ *Config, env *Env) { env.Checkpoints, env.FS = c.open(t), c.fs })
	cfg.Epochs++
	for _, r := range mustTrain(t, 2, cfg, func(rank int, _ *Config, env *Env) {
		if env.FS = c.fs; rank == 0 {
			env.Checkpoints, env.Resume, env.EverySteps = c.open(t), true, 100
		}
	}) {
		if r.Resumed != 10 || r.Steps != 15 || r.Epochs != 3 {
			t.Errorf("%+v, want a resume from step 10 to 15", r.Result)
		}
	}
	if got := c.steps(t); !slices.Equal(got, []int64{10, 15}) {
		t.Errorf("checkpoints of steps %v, want 10 and 15", got)
	}
}

// If resume is "never", a run begins anew only once. Neither a requeue nor a restart within the attempt loses what it has saved since. If
// it is asked to begin anew again from a later attempt on, it does so once more.
func TestNeverResumeHoldsOnce(t *testing.T) {
	c := newCheckpoints()
	attempt := func(number, from, epochs int) (Result, string) {
		t.Helper()
		var log bytes.Buffer
		world := mustTrain(t, 2, small(2, epochs, 5), func(rank int, _ *Config, env *Env) {
			env.FS, env.AnewFrom = c.fs, from
			if rank == 0 {
				dir, err := checkpoint.Open("checkpoints", checkpoint.Options{FS: c.fs, Run: "test", Attempt: number})
				if err != nil {
					t.Error(err)
				}
				env.Checkpoints, env.Log = dir, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
			}
		})
		return world[0].Result, log.String()
	}
	for _, test := range []struct {
		name                         string
		attempt, from, epochs, after int
		warns                        bool
		logs                         string
	}{
		{"first", 1, 0, 1, 0, false, ""},
		{"restarted in the attempt", 1, 0, 2, 5, false, "attempt 1 has begun already"},
		{"requeued", 2, 0, 3, 10, false, "attempt 1 has begun already"},
		{"asked again", 3, 3, 1, 0, true, ""},
		{"restarted", 3, 3, 2, 5, false, "attempt 3 has begun already"},
		{"requeued after that", 5, 3, 3, 10, false, "attempt 3 has begun already"},
	} {
		r, log := attempt(test.attempt, test.from, test.epochs)
		if r.Resumed != int64(test.after) || r.Steps != int64(5*test.epochs) {
			t.Errorf("%s: went on from step %d to %d, want from %d to %d", test.name, r.Resumed, r.Steps, test.after, 5*test.epochs)
		}
		if warned := strings.Contains(log, "begins anew although"); warned != test.warns || !strings.Contains(log, test.logs) {
			t.Errorf("%s: log %q; a warning: want %v; want also %q", test.name, log, test.warns, test.logs)
		}
		if test.warns && !strings.Contains(log, "step=15") {
			t.Errorf("%s: log %q does not name the step that is given up", test.name, log)
		}
	}
}

func TestResumeWithoutACheckpointStartsFresh(t *testing.T) {
	c := newCheckpoints()
	r := mustTrain(t, 2, small(2, 1, 5), func(_ int, _ *Config, env *Env) { env.Checkpoints, env.FS, env.Resume = c.open(t), c.fs, true })
	if r[0].Resumed != 0 || r[0].Steps != 5 {
		t.Errorf("%+v, want 5 steps from the start", r[0].Result)
	}
}

// A finished run that is started again takes no more steps, and has the same result.
func TestResumeOfAFinishedRunTrainsNoMore(t *testing.T) {
	cfg := small(2, 2, 5)
	c := newCheckpoints()
	first := mustTrain(t, 2, cfg, func(_ int, _ *Config, env *Env) { env.Checkpoints, env.FS = c.open(t), c.fs })
	again := mustTrain(t, 2, cfg, func(_ int, _ *Config, env *Env) { env.Checkpoints, env.FS, env.Resume = c.open(t), c.fs, true })
	want := first[0].Result
	want.Resumed = 10
	if again[0].Result != want {
		t.Errorf("%+v, want %+v", again[0].Result, want)
	}
	if out := again[1].out.String(); out != "" {
		t.Errorf("rank 1 announces %q, with nothing left to do", out)
	}
	cfg.Epochs = 1
	r := mustTrain(t, 2, cfg, func(_ int, _ *Config, env *Env) { env.Checkpoints, env.FS, env.Resume = c.open(t), c.fs, true })
	if r[0].Steps != 10 || r[0].Epochs != 2 {
		t.Errorf("with fewer epochs than are done: %+v", r[0].Result)
	}
}

// Ranks that learn of a stop at different times, or all at once, still stop after the same step.
func TestAllRanksStopTogether(t *testing.T) {
	cfg := small(4, 200, 5)
	var once sync.Once
	stop := make(chan struct{})
	world := mustTrain(t, 4, cfg, func(rank int, _ *Config, env *Env) {
		env.Stop = stop
		if rank == 0 {
			env.onStep = func(p stepDone) {
				if p.step == 7 {
					once.Do(func() { go close(stop) })
				}
			}
		}
	})
	// mustTrain has compared the ranks' results. The close runs concurrently with the steps after the 7th.
	if r := world[0].Result; !r.Stopped || r.Steps < 7 || r.Steps >= 1000 || r.Checkpoint != "" {
		t.Errorf("%+v, want a stop soon after step 7, and no checkpoint", r)
	}
}

func TestCancelledContextEndsTheRun(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c := newCheckpoints()
	env := Env{Comm: mpi.Self(), Checkpoints: c.open(t), onStep: func(p stepDone) {
		if p.step == 3 {
			cancel()
		}
	}}
	if _, err := Run(ctx, small(1, 1, 5), env); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that of the context", err)
	}
	if got := c.steps(t); len(got) != 0 {
		t.Errorf("checkpoints of steps %v", got)
	}
}

// The checkpoint of the best evaluation is made at the end of an epoch. A run that resumes from it counts that evaluation once.
func TestResumeFromTheBestCountsItOnce(t *testing.T) {
	cfg := deepJob()
	cfg.Epochs, cfg.Data.Train, cfg.Data.Eval, cfg.Evaluate.Best, cfg.Evaluate.Patience = 10, "0:48", "0:7", "loss", 3
	cfg.Optimizer.LR = 1e-30 // nothing gets better after the first epoch
	straight := complete(t, "local", 2, cfg, nil)
	if straight.Epochs != 4 {
		t.Fatalf("%+v, want 4 epochs: the best and 3 that are not better", straight.Result)
	}
	c := newCheckpoints()
	for i, r := range trainOver(t, "local", 2, cfg, func(rank int, _ *Config, env *Env) {
		env.Checkpoints, env.FS = c.open(t), c.fs
		if out := env.Out.(*output); rank == 0 {
			env.onStep = func(p stepDone) {
				if p.epoch == 1 {
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
	if resumed.Best != straight.Best || resumed.Best == "" {
		t.Errorf("resumed, the best is %q, want that of the attempt before: %q", resumed.Best, straight.Best)
	}
}

// An attempt that a newer one has superseded ends before its first step, whether or not it was asked to resume.
func TestSupersededAttemptEndsBeforeItsFirstStep(t *testing.T) {
	for _, resume := range []bool{true, false} {
		fs := vfstest.NewMem()
		dir, err := checkpoint.Open("checkpoints", checkpoint.Options{
			FS: fs, Run: "test", Attempt: 1, Fence: func() error { return errors.New("attempt 2 has begun") },
		})
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range train(t, 2, small(2, 1, 5), func(rank int, _ *Config, env *Env) {
			env.Checkpoints, env.FS, env.Resume = dir, fs, resume
			env.onStep = func(stepDone) { t.Error("a step was taken") }
		}) {
			if !errors.Is(r.err, checkpoint.ErrFenced) || errors.Is(r.err, ErrElsewhere) != (i > 0) {
				t.Errorf("rank %d: %v, want ErrFenced, of rank 0", i, r.err)
			}
		}
	}
}

// oldJob returns the job of testdata/v1: two epochs of five steps, with Adam and the residuals of int8. testdata/v1 is a checkpoint in
// version 1 of the format, which 2 ranks made after step 7.
func oldJob() Config {
	cfg := small(2, 2, 5)
	cfg.Optimizer.Kind, cfg.Optimizer.LR, cfg.DDP.Compress = "adam", 0.01, "int8"
	return cfg
}

// A run can resume from a checkpoint in version 1 of the format, with as many ranks as made it and with other numbers of ranks.
func TestResumeReadsVersion1(t *testing.T) {
	old, err := checkpoint.Open(filepath.Join("testdata", "v1"), checkpoint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	want, err := old.Load(t.Context(), 7)
	if err != nil {
		t.Fatal(err)
	}
	if len(want.Tensors) < 4*3+2*4 {
		t.Fatalf("%d tensors: 4 parameters with 2 moments each, and a residual of each on 2 ranks, are more", len(want.Tensors))
	}
	for _, world := range []int{2, 1, 4} {
		path := filepath.Join(t.TempDir(), "checkpoints")
		if err := os.CopyFS(path, os.DirFS(filepath.Join("testdata", "v1"))); err != nil {
			t.Fatal(err)
		}
		errs := onRanks(t, "local", world, func(ctx context.Context, comm *mpi.Comm) error {
			dir, err := checkpoint.Open(path, checkpoint.Options{Run: "test", Attempt: 2})
			if err != nil {
				return err
			}
			tr := newTrainer(oldJob(), Env{Comm: comm, Checkpoints: dir, Resume: true})
			defer tr.close()
			if err := tr.setUp(ctx); err != nil {
				return err
			}
			if tr.at.Step != 7 || tr.resumed != 7 || tr.at.Epoch != 1 || tr.at.Done != 2 {
				t.Errorf("%d ranks go on from %+v, want the second epoch's second step", world, tr.at)
			}
			for _, a := range tr.arrays() {
				if _, _, hook := parseHookName(a.Name); hook && world != 2 {
					continue // the ranks have means: see TestResidualsOfRanksThatAreGoneAreKept
				}
				if !slices.Equal(a.value, floatsOf(t, want, a.Name)) {
					t.Errorf("%d ranks: %s is not what was saved", world, a.Name)
				}
			}
			_, err = tr.run(ctx)
			return err
		})
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		dir, err := checkpoint.Open(path, checkpoint.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if s, _, err := dir.Latest(t.Context()); err != nil || s.Step <= 7 {
			t.Errorf("%d ranks have saved nothing: %v", world, err)
		}
	}
}
