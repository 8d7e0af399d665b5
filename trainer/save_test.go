package trainer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/testkit"
	"ddpbatch/internal/testkit/vfstest"
	"ddpbatch/internal/vfs"
	"ddpbatch/mpi"
	"ddpbatch/mpi/transport"
)

// However checkpoints are made, they hold the same, after every step; and whoever goes on from one ends with the same bytes.
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
		"too little memory": func(env *Env) { env.Async, env.Delta, env.MaxMemory = true, 3, 6<<20+4*32 }, // to encode, and for the hook,
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
			for i, info := range list { // a full one, and three that build on it
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

// load is the state after a step.
func (c checkpoints) load(t testing.TB, step int64) *checkpoint.State {
	t.Helper()
	s, err := c.open(t).Load(t.Context(), step)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A disk of the node's own in between changes nothing but when checkpoints are committed.
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

// A disk that stays full while training goes on ends it at the second save, on all ranks, for that reason, and what was saved before is good.
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

// fullAt is c on a disk that has no space for what has a word in its path.
func fullAt(c checkpoints, word string) vfs.FS {
	return vfstest.NewInjector(c.fs, func(_ int, op vfstest.Op) vfstest.Fault {
		if (op.Kind == "write" || op.Kind == "prealloc") && strings.Contains(op.Path, word) {
			return vfstest.Fault{Err: syscall.ENOSPC}
		}
		return vfstest.Fault{}
	})
}

// What is no number is not saved in the background either, and the error names it on all ranks, with the rank that saw it.
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

// A folder that cannot be written to shows before the first step where that is asked for, and the checkpoint of no step at all is a start.
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

// Evaluations get a checkpoint each where the best of them are kept, with what they found.
func TestTheBestAreKept(t *testing.T) {
	c := newCheckpoints()
	cfg := evaluatedJob(2, 6, 3)
	cfg.Evaluate.EverySteps, cfg.Evaluate.Best = 3, "loss"
	keep := checkpoint.Policy{Last: 2, Best: 3, Metric: "eval_loss"}
	var lines bytes.Buffer
	mustTrain(t, 2, cfg, func(_ int, _ *Config, env *Env) {
		dir, err := checkpoint.Open("checkpoints", checkpoint.Options{FS: c.fs, Run: "test", Attempt: 1, Keep: keep})
		if err != nil {
			t.Fatal(err)
		}
		env.Checkpoints, env.FS, env.KeepBest, env.Async, env.Metrics = dir, c.fs, true, true, &lines
	})
	losses := map[int64]float64{}
	for decoder := json.NewDecoder(&lines); decoder.More(); {
		var line metrics
		if err := decoder.Decode(&line); err != nil {
			t.Fatal(err)
		}
		if line.EvalLoss != nil {
			losses[line.Step] = *line.EvalLoss
		}
	}
	steps := []int64{3, 6, 9, 12, 15, 18}
	if len(losses) != len(steps) {
		t.Fatalf("evaluations %v, want one after each third step", losses)
	}
	best := slices.Clone(steps)
	slices.SortFunc(best, func(a, b int64) int { return int(1e9 * (losses[a] - losses[b])) })
	want := append(slices.Clone(best[:3]), 15, 18)
	slices.Sort(want)
	if got, want := c.steps(t), slices.Compact(want); !slices.Equal(got, want) {
		t.Errorf("checkpoints of steps %v, want the best three and the last two of %v: %v", got, losses, want)
	}
	for _, step := range c.steps(t) {
		if got := c.load(t, step).Metrics["eval_loss"]; got != losses[step] {
			t.Errorf("step %d has a loss of %v, want %v", step, got, losses[step])
		}
	}
}

// A save in the background has failed, and the disk takes the next one: in the middle, at a stop, at the end, and where
// the one that failed was to stay, as that of the best evaluation.
func TestASaveMakesUpForOneThatFailed(t *testing.T) {
	for name, test := range map[string]struct {
		word   string // of the paths that the disk does not take
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

// An evaluation that falls on a step whose checkpoint is due makes that checkpoint, and so does one that is made again after a resume from there.
func TestTheDueCheckpointKnowsItsEvaluation(t *testing.T) {
	cfg := evaluatedJob(2, 6, 3)
	cfg.Evaluate.EveryEpochs, cfg.Evaluate.Best = 1, "loss"
	cfg.Optimizer.LR = 0.9
	c := newCheckpoints()
	stop, progress := stopAfter(8) // after step 9, before its evaluation
	for _, resume := range []bool{false, true} {
		mustTrain(t, 2, cfg, func(rank int, _ *Config, env *Env) {
			env.Checkpoints, env.FS, env.KeepBest, env.Async, env.EverySteps, env.Resume = c.open(t), c.fs, true, true, 3, resume
			if rank == 0 && !resume {
				env.Stop, env.onStep = stop, progress
			}
		})
		if last := c.latest(t).Step; !resume && last != 9 {
			t.Fatalf("stopped after step %d, want 9", last)
		}
	}
	scored := map[int64]bool{}
	for _, step := range c.steps(t) {
		_, scored[step] = c.load(t, step).Metrics[evalLoss] // of several of a step, the newest
	}
	for step := int64(3); step <= 18; step += 3 {
		if !scored[step] {
			t.Errorf("step %d was evaluated, and no checkpoint says so: %v", step, scored)
		}
	}
}

// bestIn is the best evaluation in a checkpoint.
func bestIn(t *testing.T, s *checkpoint.State) best {
	t.Helper()
	var at position
	if err := json.Unmarshal(s.Values[keyPosition], &at); err != nil {
		t.Fatal(err)
	}
	return at.Best
}

// What was the best by another measure, or on other rows, is no mark for a job that has changed them.
func TestTheBestOfAnotherMeasureDoesNotCount(t *testing.T) {
	dir, cfg := imageJob(t)
	// Rows that are trained on until they are known by heart: no others do as well.
	cfg.Epochs, cfg.Data.Train, cfg.Data.Eval, cfg.Evaluate.Best = 8, "0:39", "0:9", "loss"
	inDir := func(_ int, _ *Config, env *Env) { env.WorkDir = dir }
	first := complete(t, "local", 1, cfg, inDir)
	if bestIn(t, first.state).Step == 0 {
		t.Fatal("there was no best evaluation")
	}
	for name, change := range map[string]func(*Config){
		"accuracy":   func(c *Config) { c.Evaluate.Best = "accuracy" },
		"other rows": func(c *Config) { c.Data.Eval = "39:48" },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := cfg
			cfg.Epochs, cfg.Optimizer.LR = first.Epochs+3, 1e-30
			change(&cfg)
			var lines bytes.Buffer
			again := completeIn(t, copyOf(t, first), "local", 1, cfg, func(_ int, _ *Config, env *Env) {
				env.WorkDir, env.Resume, env.Metrics = dir, true, &lines
			})
			var values []float64 // of this attempt's evaluations
			for decoder := json.NewDecoder(&lines); decoder.More(); {
				var line metrics
				if err := decoder.Decode(&line); err != nil {
					t.Fatal(err)
				}
				if line.EvalLoss != nil && cfg.Evaluate.Best == "accuracy" {
					values = append(values, -*line.Accuracy)
				} else if line.EvalLoss != nil {
					values = append(values, *line.EvalLoss)
				}
			}
			if len(values) != 4 { // where it was resumed from, and after 3 epochs
				t.Fatalf("%d evaluations, want 4", len(values))
			}
			got, want := bestIn(t, again.state), slices.Min(values)
			if got.Step < first.Steps || got.Value != math.Abs(want) {
				t.Errorf("best %+v, want that of the second attempt, of %v", got, values)
			}
		})
	}
}

// copyOf is a folder with the last checkpoint of a run alone.
func copyOf(t *testing.T, run training) checkpoints {
	t.Helper()
	c := newCheckpoints()
	if _, err := c.open(t).Save(t.Context(), run.state); err != nil {
		t.Fatal(err)
	}
	return c
}

// Before evaluations said which step was the last, positions had none.
func TestTheBestOfAnOlderCheckpointIsRead(t *testing.T) {
	cfg := evaluatedJob(1, 4, 3)
	cfg.Evaluate.EveryEpochs, cfg.Evaluate.Best, cfg.Optimizer.LR = 1, "loss", 1e-30
	run := complete(t, "local", 1, cfg, nil)
	var at map[string]any
	if err := json.Unmarshal(run.state.Values[keyPosition], &at); err != nil {
		t.Fatal(err)
	}
	delete(at["best"].(map[string]any), "last")
	text, err := json.Marshal(at)
	if err != nil {
		t.Fatal(err)
	}
	run.state.Values = maps.Clone(run.state.Values)
	run.state.Values[keyPosition] = text
	want := bestIn(t, run.state)
	if want.Step != 3 || want.Last != 0 {
		t.Fatalf("best %+v, want one of step 3", want)
	}
	cfg.Epochs++
	got := bestIn(t, completeIn(t, copyOf(t, run), "local", 1, cfg, func(_ int, _ *Config, env *Env) { env.Resume = true }).state)
	if got.Step != want.Step || got.Value != want.Value || got.Last != 15 {
		t.Errorf("best %+v, want that of step 3, after an evaluation at step 15", got)
	}
}

// encoding is where a goroutine is that encodes, in its stack.
var encoding = regexp.MustCompile(`/shard\.\(\*\w+\)\.work\(`)

// Rank 0 encodes with no more goroutines than it has threads, and than its memory has room for, whoever has opened the folder.
func TestRank0EncodesWithinItsThreadsAndMemory(t *testing.T) { // without the race detector
	for name, test := range map[string]struct {
		threads int
		memory  int64
		want    int
	}{
		"one thread":                {1, 0, 1},
		"three threads":             {3, 0, 3},
		"memory for two of three":   {3, 11 << 20, 2},
		"memory for one of three":   {3, 6 << 20, 1},
		"memory for more than that": {3, 1 << 30, 3},
	} {
		c, most := newCheckpoints(), 0
		stacks := make([]byte, 1<<20)
		looked := checkpoints{vfstest.NewInjector(c.fs, func(_ int, op vfstest.Op) vfstest.Fault {
			if op.Kind == "write" && strings.Contains(op.Path, "shard") {
				all := stacks[:runtime.Stack(stacks, true)]
				most = max(most, len(encoding.FindAll(all, -1)))
			}
			return vfstest.Fault{}
		})}
		cfg := small(1, 1, 1)
		cfg.Model.Hidden = []int{250_000} // 12 MB with their momentum, which is more batches of 1 MiB than are encoded at a time
		mustTrain(t, 1, cfg, func(_ int, _ *Config, env *Env) {
			env.Checkpoints, env.FS, env.Threads, env.MaxMemory = looked.open(t), looked.fs, test.threads, test.memory
		})
		if most < 1 || most > test.want { // one that has not been scheduled yet is not seen
			t.Errorf("%s: %d goroutines encode, want at most %d", name, most, test.want)
		}
	}
}

// Memory that does not suffice to encode with one thread ends a run on all ranks before its first step, and they say what would be enough.
func TestTooLittleMemoryToEncodeEndsTheRun(t *testing.T) {
	for compress, want := range map[string]string{"none": "checkpoint.memory to 6M", "int8": "checkpoint.memory to 7M"} { // residuals are copied, too
		c := newCheckpoints()
		for rank, r := range train(t, 2, small(2, 1, 5), func(rank int, cfg *Config, env *Env) {
			cfg.DDP.Compress = compress
			env.Checkpoints, env.FS = c.open(t), c.fs
			if rank == 1 {
				env.MaxMemory = 6<<20 - 1
			}
		}) {
			if r.err == nil || !strings.Contains(r.err.Error(), want) || strings.Contains(r.err.Error(), "rank 1: ") != (rank == 0) {
				t.Errorf("%s: rank %d: %v; want %q", compress, rank, r.err, want)
			}
		}
		if got := c.steps(t); len(got) != 0 {
			t.Errorf("%s: checkpoints of steps %v", compress, got)
		}
	}
	// Without compression there is nothing to encode.
	c := newCheckpoints()
	dir, err := checkpoint.Open("checkpoints", checkpoint.Options{FS: c.fs, Run: "test", Attempt: 1, Codec: "none"})
	if err != nil {
		t.Fatal(err)
	}
	mustTrain(t, 1, small(1, 1, 5), func(_ int, _ *Config, env *Env) { env.Checkpoints, env.FS, env.MaxMemory = dir, c.fs, 1<<20 })
}

// TestGroupCarriesBytes: messages of any length, none included, arrive as they are, by rank.
func TestGroupCarriesBytes(t *testing.T) {
	message := func(rank, length int) []byte { return bytes.Repeat([]byte{byte(rank + 1)}, length*rank) }
	for _, err := range onRanks(t, "local", 4, func(ctx context.Context, comm *mpi.Comm) error {
		g, err := newSaveGroup(ctx, comm)
		if err != nil {
			return err
		}
		for _, length := range []int{0, 1, 100_000} {
			all, err := g.Gather(ctx, message(g.Rank(), length))
			if err != nil {
				return err
			}
			if g.Rank() != 0 && all != nil || g.Rank() == 0 && len(all) != 4 {
				return fmt.Errorf("rank %d has %d messages", g.Rank(), len(all))
			}
			for rank, got := range all {
				if !bytes.Equal(got, message(rank, length)) {
					return fmt.Errorf("%d bytes of rank %d are not what it sent", len(got), rank)
				}
			}
			got, err := g.Broadcast(ctx, message(3-g.Rank(), length)) // rank 0's is not empty
			if err != nil {
				return err
			}
			if !bytes.Equal(got, message(3, length)) {
				return fmt.Errorf("rank %d was told %d bytes", g.Rank(), len(got))
			}
		}
		return nil
	}) {
		if err != nil {
			t.Error(err)
		}
	}
}

// pairOf is two ranks in this process.
func pairOf(t *testing.T, timeout time.Duration) []*mpi.Comm {
	t.Helper()
	cfg := mpi.DefaultConfig()
	cfg.Timeout = timeout
	comms, err := mpi.InitLocal(t.Context(), transport.NewNetwork(2), mpi.InitConfig{Config: cfg})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, c := range comms {
			c.Close()
		}
	})
	return comms
}

// TestPeersTakeTurns: messages arrive whole and in their order, both ways at once, and nobody is ahead of a receiver by more than one.
func TestPeersTakeTurns(t *testing.T) {
	t.Parallel()
	comms := pairOf(t, time.Minute)
	var sent [2]chan int
	for i := range sent {
		sent[i] = make(chan int, 100)
	}
	message := func(from, i int) []byte { return bytes.Repeat([]byte{byte(from<<7 | i)}, 1+i*1000) }
	err := errors.Join(testkit.Each(2, func(rank int) error {
		p, err := newShardPeers(t.Context(), comms[rank])
		if err != nil {
			return err
		}
		other := 1 - rank
		return errors.Join(testkit.Each(2, func(side int) error {
			for i := range 20 {
				if side == 0 {
					if err := p.Send(t.Context(), other, message(rank, i)); err != nil {
						return err
					}
					sent[rank] <- i
					continue
				}
				if n := len(sent[other]); n > i {
					t.Errorf("%d messages are sent, of which rank %d has asked for %d", n, rank, i)
				}
				buf := make([]byte, 20000)
				n, err := p.Recv(t.Context(), other, buf)
				if err != nil {
					return err
				}
				if !bytes.Equal(buf[:n], message(other, i)) {
					t.Errorf("message %d has %d bytes, or others than were sent", i, n)
				}
			}
			return nil
		})...)
	})...)
	if err != nil {
		t.Fatal(err)
	}
}

// TestSlowPeerEndsOnlyTheCopying: a partner does not come for longer than the ranks wait for each other. That ends the
// copying on both, and nothing else.
func TestSlowPeerEndsOnlyTheCopying(t *testing.T) {
	synctest.Test(t, testSlowPeer) // by whose clock the ranks wait for nothing else
}

func testSlowPeer(t *testing.T) {
	comms := pairOf(t, time.Second)
	gaveUp := make(chan struct{})
	errs := testkit.Each(2, func(rank int) error {
		p, err := newShardPeers(t.Context(), comms[rank])
		if err != nil {
			return err
		}
		if rank == 0 {
			defer close(gaveUp)
			return p.Send(t.Context(), 1, []byte("a shard"))
		}
		<-gaveUp
		for err == nil { // what came before the end can still be received
			_, err = p.Recv(t.Context(), 0, make([]byte, 10))
		}
		return err
	})
	for rank, err := range errs {
		if !errors.Is(err, mpi.ErrTimeout) {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
	err := errors.Join(testkit.Each(2, func(rank int) error { return comms[rank].Barrier(context.Background()) })...)
	if err != nil {
		t.Errorf("training cannot go on: %v", err)
	}
}

// BenchmarkSave saves after every step of an MLP with Adam, whose state is 23 MB. It gives how long training stands still for that beside a
// step, and what a durable checkpoint takes.
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
