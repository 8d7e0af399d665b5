package trainer

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/testkit"
	"ddpbatch/internal/testkit/vfstest"
	"ddpbatch/internal/vfs"
	"ddpbatch/mpi"
)

// Checkpoints hold the same state after every step, however they are made, and a run that resumes from one ends with the same bytes.
func TestSavesInTheBackgroundAreTheSame(t *testing.T) {
	const world, epochs, steps = 3, 2, 5
	job := func() Config {
		cfg := small(1, epochs, steps)
		cfg.BatchSize, cfg.Data.Train, cfg.Data.Eval = 3, "0:45", "45:48"
		cfg.Data.Rows = 48
		cfg.Optimizer.Kind, cfg.Optimizer.Zero, cfg.DDP.Compress = "adam", true, "int8"
		return cfg
	}
	want := newCheckpoints()
	mustTrain(t, world, job(), func(_ int, _ *Config, env *Env) {
		env.Checkpoints, env.FS, env.EverySteps = want.open(t), want.fs, 1
	})
	all := want.steps(t)
	if len(all) != epochs*steps {
		t.Fatalf("checkpoints of steps %v, want one of each", all)
	}
	for name, change := range map[string]func(*Env){
		"async":             func(env *Env) { env.Async = true },
		"deltas":            func(env *Env) { env.Delta = 3 },
		"async deltas":      func(env *Env) { env.Async, env.Delta = true, 3 },
		"too little memory": func(env *Env) { env.Async, env.Delta, env.MaxMemory = true, 3, 6<<20+4*32 }, // for encoding and the hook
	} {
		t.Run(name, func(t *testing.T) {
			c := newCheckpoints()
			mustTrain(t, world, job(), func(_ int, _ *Config, env *Env) {
				env.Checkpoints, env.FS, env.EverySteps = c.open(t), c.fs, 1
				change(env)
			})
			if got := c.steps(t); !slices.Equal(got, all) {
				t.Fatalf("checkpoints of steps %v, want %v", got, all)
			}
			for _, step := range all {
				sameState(t, c.load(t, step), want.load(t, step))
			}
			list, err := c.open(t).List(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for i, info := range list { // one full checkpoint, then three deltas
				if delta, want := info.BaseStep >= 0, strings.Contains(name, "deltas") && i%4 != 0; delta != want {
					t.Errorf("step %d is of base %d, and the difference to another: %v", info.Step, info.BaseStep, want)
				}
			}
			from := newCheckpoints()
			stop, progress := stopAfter(5) // after step 6
			stopped := mustTrain(t, world, job(), func(rank int, _ *Config, env *Env) {
				env.Checkpoints, env.FS, env.EverySteps = from.open(t), from.fs, 1
				if change(env); rank == 0 {
					env.onStep, env.Stop = progress, stop
				}
			})[0].Result
			if !stopped.Stopped || stopped.Steps != 6 {
				t.Fatalf("%+v, want a stop after step 6", stopped)
			}
			mustTrain(t, world, job(), func(_ int, _ *Config, env *Env) {
				env.Checkpoints, env.FS, env.EverySteps, env.Resume = from.open(t), from.fs, 1, true
				change(env)
			})
			sameState(t, from.latest(t), want.latest(t))
		})
	}
}

// load returns the state in the checkpoint of a step.
func (c checkpoints) load(t testing.TB, step int64) *checkpoint.State {
	t.Helper()
	s, err := c.open(t).Load(t.Context(), step)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Saving over a local disk of each node changes only the time at which checkpoints are committed.
func TestSavesOverALocalDiskAreTheSame(t *testing.T) {
	for _, replicate := range []bool{false, true} {
		t.Run(fmt.Sprint("replicate ", replicate), func(t *testing.T) { testLocalDisk(t, replicate) })
	}
}

func testLocalDisk(t *testing.T, replicate bool) {
	cfg := small(2, 2, 5)
	straight, c := newCheckpoints(), newCheckpoints()
	mustTrain(t, 2, cfg, func(_ int, _ *Config, env *Env) { env.Checkpoints, env.FS = straight.open(t), straight.fs })
	if err := c.fs.Mkdir("/scratch"); err != nil {
		t.Fatal(err)
	}
	stop, progress := stopAfter(5)
	var replicas atomic.Int32
	disk := vfstest.NewInjector(c.fs, func(_ int, op vfstest.Op) vfstest.Fault {
		if op.Kind == "create" && strings.Contains(op.Path, "/replicas/") {
			replicas.Add(1)
		}
		return vfstest.Fault{}
	})
	local := func(rank int, _ *Config, env *Env) {
		dir, err := checkpoint.Open("/checkpoints", checkpoint.Options{FS: c.fs, Run: "test", Attempt: 1}) // c's folder
		if err != nil {
			t.Fatal(err)
		}
		env.Checkpoints, env.FS, env.EverySteps, env.Async, env.Local = dir, disk, 1, true, "/scratch"
		env.Replicate, env.Node = replicate, strconv.Itoa(rank)
		if rank == 0 {
			env.Stop, env.onStep = stop, progress
		}
	}
	if r := mustTrain(t, 2, cfg, local)[0].Result; !r.Stopped || r.Steps != 6 || !slices.Contains(c.steps(t), 6) {
		t.Fatalf("%+v and checkpoints of steps %v, want a stop after step 6, and that committed", r, c.steps(t))
	}
	stop, progress = make(chan struct{}), nil
	if r := mustTrain(t, 2, cfg, func(rank int, cfg *Config, env *Env) {
		local(rank, cfg, env)
		env.Resume = true
	})[0].Result; r.Resumed != 6 {
		t.Errorf("%+v, want a resume from step 6", r)
	}
	sameState(t, c.latest(t), straight.latest(t))
	if (replicas.Load() > 0) != replicate {
		t.Errorf("%d files of replicas were made", replicas.Load())
	}
	if left, err := c.fs.ReadDir("/scratch"); err != nil || len(left) > 0 {
		t.Errorf("%v stays on the node's own disk: %v", left, err)
	}
}

// A disk that stays full ends training at the second save that fails, on all ranks, with that error.
// The checkpoints from before are good.
func TestFailedBackgroundSaveEndsAllRanks(t *testing.T) {
	c := newCheckpoints()
	for i, r := range train(t, 3, small(3, 2, 5), func(_ int, _ *Config, env *Env) {
		full := fullAt(checkpoints{fullAt(c, stepName(4))}, stepName(6))
		env.Checkpoints, env.FS, env.EverySteps, env.Async = checkpoints{full}.open(t), full, 2, true
	}) {
		if !errors.Is(r.err, checkpoint.ErrNoSpace) || !strings.Contains(r.err.Error(), "save step 6: ") {
			t.Errorf("rank %d: %v, want ErrNoSpace of step 6", i, r.err)
		}
	}
	if got := c.steps(t); len(got) == 0 || got[0] != 2 {
		t.Errorf("checkpoints of steps %v, want that of step 2", got)
	}
	r := mustTrain(t, 3, small(3, 2, 5), func(_ int, _ *Config, env *Env) {
		env.Checkpoints, env.FS, env.Resume = c.open(t), c.fs, true
	})[0].Result
	if r.Resumed != 2 {
		t.Errorf("%+v, want a resume from step 2", r)
	}
}

// fullAt returns c's file system without space for files that have word in their path.
func fullAt(c checkpoints, word string) vfs.FS {
	return vfstest.NewInjector(c.fs, func(_ int, op vfstest.Op) vfstest.Fault {
		if (op.Kind == "write" || op.Kind == "prealloc") && strings.Contains(op.Path, word) {
			return vfstest.Fault{Err: syscall.ENOSPC}
		}
		return vfstest.Fault{}
	})
}

// A number that is not finite is not saved in the background, either. The error on all ranks names the array.
func TestNothingBadIsSavedInTheBackground(t *testing.T) {
	c := newCheckpoints()
	cfg := small(2, 1, 3)
	cfg.Model.Kind, cfg.Optimizer.LR, cfg.Data.Noise, cfg.Data.Eval = "dense", 3e38, 1000, ""
	for i, r := range train(t, 2, cfg, func(_ int, _ *Config, env *Env) {
		env.Checkpoints, env.FS, env.EverySteps, env.Async = c.open(t), c.fs, 1, true
	}) {
		if !errors.Is(r.err, ErrDiverged) || !strings.Contains(r.err.Error(), ".0.") {
			t.Errorf("rank %d: %v, want ErrDiverged and the name of an array", i, r.err)
		}
	}
	if got := c.steps(t); len(got) != 0 {
		t.Errorf("checkpoints of steps %v", got)
	}
}

// With AtStart a run saves before its first step, which shows whether the folder can be written to. A run can resume from that checkpoint,
// of step 0.
func TestSaveAtTheStartShowsAFullDisk(t *testing.T) {
	cfg := small(2, 1, 5)
	straight, c := newCheckpoints(), newCheckpoints()
	mustTrain(t, 2, cfg, func(_ int, _ *Config, env *Env) { env.Checkpoints, env.FS = straight.open(t), straight.fs })
	for i, r := range train(t, 2, cfg, func(rank int, _ *Config, env *Env) {
		env.Checkpoints, env.FS, env.AtStart, env.Async = c.open(t), c.fs, true, true
		if out := env.Out.(*output); rank == 0 {
			env.onStep = func(stepDone) { out.kill() }
		}
	}) {
		if r.err == nil {
			t.Fatalf("rank %d noticed nothing", i)
		}
	}
	if got := c.steps(t); !slices.Equal(got, []int64{0}) {
		t.Fatalf("checkpoints of steps %v, want that of the start", got)
	}
	if loss, ok := c.load(t, 0).Metrics["loss"]; ok {
		t.Errorf("a loss of %v before the first step", loss)
	}
	var log testkit.Journal
	mustTrain(t, 2, cfg, func(_ int, _ *Config, env *Env) {
		env.Checkpoints, env.FS, env.AtStart, env.Resume, env.Log = c.open(t), c.fs, true, true, log.Logger()
	})
	if got := c.steps(t); !slices.Equal(got, []int64{0, 5}) {
		t.Errorf("checkpoints of steps %v, want none twice", got)
	}
	sameState(t, c.latest(t), straight.latest(t))
}

// If a background save fails but the disk takes the next save, training does not fail. The next save may be in the middle, at a
// stop or at the end, and the failed one may be that of the best evaluation, which was to be kept.
func TestASaveMakesUpForOneThatFailed(t *testing.T) {
	for name, test := range map[string]struct {
		word   string // in the paths that the disk has no space for
		change func(cfg *Config)
		want   []int64 // nil: none, and an error
	}{
		"in the middle":       {stepName(4), func(cfg *Config) { cfg.Epochs = 2 }, []int64{8, 12, 14}},
		"at a stop":           {stepName(4), func(*Config) {}, []int64{5}},
		"at the end":          {stepName(4), func(*Config) {}, []int64{7}},
		"the best evaluation": {stepName(5), func(cfg *Config) { cfg.Evaluate.EverySteps, cfg.Evaluate.Best = 5, "loss" }, []int64{4, 7}},
		"never again":         {"shard", func(*Config) {}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			c, log := newCheckpoints(), testkit.Journal{}
			stop, progress := stopAfter(4)
			for i, r := range train(t, 2, small(2, 1, 7), func(rank int, cfg *Config, env *Env) {
				full := fullAt(c, test.word)
				env.Checkpoints, env.FS, env.EverySteps, env.Async = checkpoints{full}.open(t), full, 4, true
				if test.change(cfg); rank == 0 {
					env.Log = log.Logger()
					if name == "at a stop" {
						env.Stop, env.onStep = stop, progress
					}
				}
			}) {
				if test.want == nil && !errors.Is(r.err, checkpoint.ErrNoSpace) || test.want != nil && r.err != nil {
					t.Errorf("rank %d: %v", i, r.err)
				}
			}
			if got := c.steps(t); !slices.Equal(got, test.want) {
				t.Errorf("checkpoints of steps %v, want %v", got, test.want)
			}
			if n := strings.Count(log.String(), "trying once more"); n != 1 {
				t.Errorf("%d warnings, want one:\n%s", n, log.String())
			}
		})
	}
}

// BenchmarkSave saves after every step of an MLP with Adam, whose state is 23 MB. It reports how long a save stalls training, how long a
// step takes, and how long a durable checkpoint takes.
func BenchmarkSave(b *testing.B) {
	for name, async := range map[string]bool{"background": true, "waiting": false} {
		b.Run(name, func(b *testing.B) {
			cfg := benchmarkConfig(b, "mlp")
			cfg.Model.Hidden, cfg.Optimizer.Kind, cfg.Optimizer.LR, cfg.Optimizer.Momentum = []int{1024, 1024}, "adam", 1e-4, 0
			dir, err := checkpoint.Open(b.TempDir(), checkpoint.Options{Attempt: 1, Keep: checkpoint.Policy{Last: 2}})
			if err != nil {
				b.Fatal(err)
			}
			tr := newTrainer(cfg, Env{Comm: mpi.Self(), Checkpoints: dir, Async: async})
			if err := tr.setUp(b.Context()); err != nil {
				b.Fatal(err)
			}
			defer tr.close()
			tr.beginEpoch()
			var steps, durable time.Duration
			for b.Loop() {
				if tr.stepsLeft() == 0 {
					tr.at = tr.at.nextEpoch()
					tr.beginEpoch()
				}
				start := time.Now()
				if err := tr.step(b.Context()); err != nil {
					b.Fatal(err)
				}
				steps += time.Since(start)
				if err := tr.save(b.Context(), false); err != nil {
					b.Fatal(err)
				}
				if err := tr.finishSave(b.Context()); err != nil {
					b.Fatal(err)
				}
				durable += tr.saver.Stats().Total.Last
			}
			per := func(d time.Duration) float64 { return d.Seconds() * 1e3 / float64(b.N) }
			b.ReportMetric(per(steps), "ms/step")
			b.ReportMetric(per(tr.cost.stall), "ms/stall")
			b.ReportMetric(per(durable), "ms/durable")
			b.ReportMetric(float64(tr.saver.Stats().Raw)/1e6, "MB")
		})
	}
}
