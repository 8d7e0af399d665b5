package trainer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/testkit"
	"ddpbatch/internal/testkit/thin"
	"ddpbatch/internal/testkit/vfstest"
	"ddpbatch/mpi"
)

// stopAfter closes stop when step k has been taken on rank 0, so that step k+1 is
// the last; for k = 0 it is closed already.
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

// The promise of a resume: whatever the step after which a run of 20 steps was stopped, it ends
// with the very bytes of the run that was not.
func TestResumeAtEveryStepGivesTheSameBytes(t *testing.T) { // also without the race detector
	const epochs, steps = 4, 5
	for _, size := range []int{1, 2, 4} {
		t.Run(fmt.Sprintf("world %d", size), func(t *testing.T) {
			cfg := small(size, epochs, steps)
			straight := newCheckpoints()
			whole := mustTrain(t, size, cfg, func(_ int, _ *Config, env *Env) { env.Checkpoints, env.FS = straight.open(t), straight.fs })
			want := straight.latest(t)
			if want.Step != epochs*steps || len(want.Tensors) != 8 {
				t.Fatalf("a straight run saved step %d and %d tensors, want 20, and 4 parameters with their momentum", want.Step, len(want.Tensors))
			}
			for k := int64(1); k < epochs*steps; k += int64(thin.Step(3)) {
				c := newCheckpoints()
				stop, progress := stopAfter(k - 1)
				stopped := mustTrain(t, size, cfg, func(rank int, _ *Config, env *Env) {
					env.Checkpoints, env.FS = c.open(t), c.fs
					// Before the first step the last rank is asked, later rank 0: one is enough.
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

// A run that dies between checkpoints loses the steps since the last one, and nothing else.
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

// Only rank 0 looks for checkpoints: what the others are given does not count.
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

// Where resume is "never" a run begins anew once: what it saved since is never lost to a requeue, nor to a restart within the attempt. Asked
// again for a later attempt, that one begins anew, once.
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

// A finished run that is started again trains no more and saves no more, and says the same.
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
	if r := mustTrain(t, 2, cfg, func(_ int, _ *Config, env *Env) { env.Checkpoints, env.FS, env.Resume = c.open(t), c.fs, true }); r[0].Steps != 10 || r[0].Epochs != 2 {
		t.Errorf("with fewer epochs than are done: %+v", r[0].Result)
	}
}

// Checkpoints that do not fit are refused on every rank, and what differs is named.
func TestMismatchIsRefusedAndNamed(t *testing.T) {
	base := small(2, 2, 5)
	c := newCheckpoints()
	mustTrain(t, 2, base, func(_ int, _ *Config, env *Env) { env.Checkpoints, env.FS = c.open(t), c.fs })
	for name, test := range map[string]struct {
		size   int
		change func(*Config)
		want   string // empty: it fits
	}{
		"batch size":    {2, func(c *Config) { c.BatchSize = 3 }, "batch_size is 4 in the checkpoint and 3 here"},
		"world size":    {1, func(c *Config) {}, ""},
		"seed":          {2, func(c *Config) { c.Seed = 9 }, "seed is 3"},
		"rows":          {2, func(c *Config) { c.Data.Train = "0:36" }, "rows to train on is 37"},
		"hidden layer":  {2, func(c *Config) { c.Model.Hidden = []int{6} }, "model.hidden is [5] in the checkpoint and [6] here"},
		"model":         {2, func(c *Config) { c.Model.Kind = "dense" }, "model.kind is mlp"},
		"activation":    {2, func(c *Config) { c.Model.Activation = "relu" }, "model.activation is tanh"},
		"inputs":        {2, func(c *Config) { c.Data.Inputs = 4 }, "inputs of a row is 3"},
		"order":         {2, func(c *Config) { c.Data.Shuffle = false }, "data.shuffle is true"},
		"momentum":      {2, func(c *Config) { c.Optimizer.Momentum = 0 }, "optimizer.momentum is 0.9"},
		"two at once":   {2, func(c *Config) { c.Seed, c.BatchSize = 1, 1 }, "here; seed is 3"},
		"more epochs":   {2, func(c *Config) { c.Epochs = 3 }, ""},
		"learning rate": {2, func(c *Config) { c.Optimizer.LR = 0.01 }, ""},
		"evaluation":    {2, func(c *Config) { c.Data.Eval, c.Evaluate.EveryEpochs = "", 0 }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := base
			test.change(&cfg)
			for i, r := range train(t, test.size, cfg, func(_ int, _ *Config, env *Env) {
				env.Checkpoints, env.FS, env.Resume = c.open(t), c.fs, true
			}) {
				switch {
				case test.want == "" && r.err != nil:
					t.Errorf("rank %d: %v", i, r.err)
				case test.want != "" && (!errors.Is(r.err, ErrMismatch) || !strings.Contains(r.err.Error(), test.want)):
					t.Errorf("rank %d: error %v, want ErrMismatch with %q", i, r.err, test.want)
				}
			}
		})
	}
}

// The file has the same name and the same number of rows, but other rows.
func TestChangedDataIsAMismatch(t *testing.T) {
	c := newCheckpoints()
	run := func(labels ...byte) error {
		dir, cfg := digits(t, labels...)
		return train(t, 1, cfg, func(_ int, _ *Config, env *Env) {
			env.Checkpoints, env.FS, env.Resume, env.WorkDir = c.open(t), c.fs, true, dir
		})[0].err
	}
	for _, test := range []struct {
		labels []byte
		want   string // empty: it fits
	}{
		{[]byte{3, 4, 5}, ""},
		{[]byte{3, 9, 5}, "SHA-256 of the rows is "},
		{[]byte{3, 4, 9}, ""}, // another row to evaluate
	} {
		err := run(test.labels...)
		if test.want == "" && err != nil || test.want != "" && (!errors.Is(err, ErrMismatch) || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("labels %v: error %v, want %q", test.labels, err, test.want)
		}
	}
}

// Where every checkpoint is corrupt, the run must not start over by itself.
func TestAllCorruptDoesNotStartOver(t *testing.T) {
	c := newCheckpoints()
	cfg := small(2, 2, 5)
	mustTrain(t, 2, cfg, func(_ int, _ *Config, env *Env) { env.Checkpoints, env.FS, env.EverySteps = c.open(t), c.fs, 5 })
	for _, step := range c.steps(t) {
		c.corrupt(t, step)
	}
	for i, r := range train(t, 2, cfg, func(_ int, _ *Config, env *Env) { env.Checkpoints, env.FS, env.Resume = c.open(t), c.fs, true }) {
		if !errors.Is(r.err, checkpoint.ErrCorrupt) || !strings.Contains(r.err.Error(), "start a new run") {
			t.Errorf("rank %d: error %v, want ErrCorrupt and what to do", i, r.err)
		}
		if said := strings.Count(r.err.Error(), "resume: "); said != 1 {
			t.Errorf("rank %d: error %v says %d times what was being done", i, r.err, said)
		}
	}
}

// Checkpoints of other programs, or whose parts contradict each other.
func TestForeignCheckpointsAreRefused(t *testing.T) {
	cfg := small(1, 2, 5)
	c := newCheckpoints()
	mustTrain(t, 1, cfg, func(_ int, _ *Config, env *Env) { env.Checkpoints, env.FS = c.open(t), c.fs })
	for name, test := range map[string]struct {
		change func(*checkpoint.State)
		class  error
		want   string
	}{
		"no facts":        {func(s *checkpoint.State) { delete(s.Values, keyFacts) }, ErrMismatch, "another program"},
		"no position":     {func(s *checkpoint.State) { delete(s.Values, keyPosition) }, ErrMismatch, keyPosition},
		"facts no object": {func(s *checkpoint.State) { s.Values[keyFacts] = []byte("3") }, checkpoint.ErrCorrupt, keyFacts},
		"negative epoch":  {func(s *checkpoint.State) { s.Values[keyPosition] = []byte(`{"step":10,"epoch":-1}`) }, checkpoint.ErrCorrupt, "impossible"},
		"another step":    {func(s *checkpoint.State) { s.Step = 9 }, checkpoint.ErrCorrupt, "impossible"},
		"a huge epoch":    {func(s *checkpoint.State) { s.Values[keyPosition] = []byte(`{"step":10,"epoch":4611686018427387904}`) }, checkpoint.ErrCorrupt, "impossible"},
		"a tensor less":   {func(s *checkpoint.State) { s.Tensors = s.Tensors[1:] }, ErrMismatch, "it has no model.0.weight"},
		"a tensor more": {func(s *checkpoint.State) {
			s.Tensors = append(s.Tensors, checkpoint.Float32Tensor("more", nil, []float32{1}))
		}, ErrMismatch, "more"},
		"another shape": {func(s *checkpoint.State) { s.Tensors[0].Shape = []int{3, 5} }, ErrMismatch, "model.0.weight is [3 5]"},
	} {
		t.Run(name, func(t *testing.T) {
			s := c.latest(t)
			test.change(s)
			other := newCheckpoints()
			if _, err := other.open(t).Save(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			for i, r := range train(t, 1, cfg, func(_ int, _ *Config, env *Env) { env.Checkpoints, env.FS, env.Resume = other.open(t), other.fs, true }) {
				if !errors.Is(r.err, test.class) || !strings.Contains(r.err.Error(), test.want) {
					t.Errorf("rank %d: error %v, want %v with %q", i, r.err, test.class, test.want)
				}
			}
		})
	}
}

// Ranks that are asked at different times, or all at once, still stop after the same step.
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
	// mustTrain has compared the ranks' results. The close raced with steps after the 7th.
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

// resumeCase is a job of 20 steps, in 4 epochs.
type resumeCase struct {
	name   string
	world  int
	change func(*Config)
}

// everything is what an optimizer step may depend on besides the gradient.
func everything(c *Config) {
	c.Optimizer.Kind, c.Optimizer.LR, c.Optimizer.WeightDecay = "adamw", 0.02, 0.1
	c.Schedule.Kind, c.Schedule.WarmupSteps, c.Schedule.MinLR = "cosine", 3, 0.001
	c.Model.Dropout, c.ClipNorm = 0.2, 0.3
	c.BatchSize, c.Accumulate = c.BatchSize/2, 2
}

// A run that was stopped, with whatever there is to remember, ends with the bytes of the one that was not.
func TestResumeRemembersEverything(t *testing.T) { // without the race detector
	smallBuckets := func(c *Config) { c.DDP.BucketMB = 0.0005 }
	both := func(changes ...func(*Config)) func(*Config) {
		return func(c *Config) {
			for _, change := range changes {
				change(c)
			}
		}
	}
	compress := func(name string) func(*Config) {
		return func(c *Config) { c.DDP.Compress, c.DDP.Rank, c.DDP.StartStep = name, 2, 5 }
	}
	zero := func(c *Config) { c.Optimizer.Zero = true }
	pipeline := func(c *Config) { c.Pipeline, c.MicroBatches = 2, 2 }
	replicas := func(c *Config) { c.Mode, c.Replicas = "dp", 3 }
	average := func(c *Config) { c.DDP.AverageEvery, c.DDP.AverageWarmup = 3, 4 }

	all := []int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19}
	some := []int64{1, 2, 5, 6, 13, 19}
	for _, test := range []struct {
		resumeCase
		stops []int64
	}{
		{resumeCase{"adamw, cosine, dropout, clipped, accumulated", 2, everything}, all},
		{resumeCase{"adam of one rank", 1, func(c *Config) { c.Optimizer.Kind, c.Optimizer.LR = "adam", 0.02 }}, some},
		{resumeCase{"lamb, one cycle", 2, func(c *Config) { c.Optimizer.Kind, c.Schedule.Kind = "lamb", "one_cycle" }}, some},
		{resumeCase{"nesterov, step schedule", 3, func(c *Config) {
			c.Optimizer.Nesterov, c.Schedule.Kind, c.Schedule.StepSize = true, "step", 6
		}}, some},
		{resumeCase{"float16", 2, both(everything, func(c *Config) { c.Precision = "float16" })}, some},
		{resumeCase{"float16 that overflows", 2, func(c *Config) { c.Precision, c.Data.Noise = "float16", 40 }}, some},
		{resumeCase{"sent as float16", 2, both(smallBuckets, compress("float16"))}, some},
		{resumeCase{"int8", 2, both(everything, compress("int8"))}, some},
		{resumeCase{"int8, small buckets", 3, both(smallBuckets, compress("int8"))}, some},
		{resumeCase{"powersgd", 2, both(everything, compress("powersgd"))}, some},
		{resumeCase{"powersgd, small buckets", 3, both(smallBuckets, compress("powersgd"))}, some},
		{resumeCase{"ZeRO", 3, both(everything, zero)}, some},
		{resumeCase{"ZeRO of more ranks than parameters, int8", 4, both(zero, compress("int8"), func(c *Config) { c.Model.Kind = "dense" })}, some},
		{resumeCase{"pipeline", 2, both(everything, pipeline)}, some},
		{resumeCase{"pipelines, ZeRO, int8", 4, both(everything, pipeline, zero, compress("int8"))}, some},
		{resumeCase{"pipeline, powersgd", 2, both(everything, pipeline, compress("powersgd"))}, some},
		{resumeCase{"pipelines, powersgd", 4, both(everything, pipeline, smallBuckets, compress("powersgd"))}, some},
		{resumeCase{"local SGD", 2, both(everything, average)}, some},
		{resumeCase{"replicas", 1, both(everything, replicas)}, some},
		{resumeCase{"ranks of replicas, powersgd", 2, both(everything, replicas, compress("powersgd"))}, some},
		{resumeCase{"uneven", 3, func(c *Config) { c.Data.Remainder = "uneven" }}, some},
		{resumeCase{"drop", 3, func(c *Config) { c.Data.Remainder = "drop" }}, some},
		{resumeCase{"the best evaluation", 2, func(c *Config) {
			c.Data.Train, c.Data.Eval, c.Evaluate.EverySteps, c.Evaluate.Best, c.Evaluate.Patience = "0:39", "0:7", 2, "loss", 100
		}}, some},
	} {
		t.Run(test.name, func(t *testing.T) {
			cfg := deepJob()
			cfg.Epochs, cfg.BatchSize, cfg.Data.Rows = 4, 8/max(1, test.world), 39
			if test.world == 3 {
				cfg.BatchSize, cfg.Data.Rows = 2, 29
			}
			if cfg.BatchSize%2 == 1 {
				t.Fatal("an odd batch cannot be accumulated")
			}
			test.change(&cfg)
			if cfg.Pipeline > 1 {
				cfg.BatchSize *= cfg.Pipeline
			}
			test.stopAndResume(t, "", cfg, test.stops)
		})
	}
}

// Running statistics are part of the state.
func TestResumeRemembersBuffers(t *testing.T) { // without the race detector
	dir, cfg := imageJob(t)
	cfg.Epochs, cfg.Data.Train, cfg.Data.Eval, cfg.Evaluate.Best = 4, "0:39", "39:48", "loss"
	for _, test := range []resumeCase{
		{"a rank", 1, func(c *Config) { c.BatchSize = 8 }},
		{"ranks of their own", 2, func(*Config) {}},
		{"over ranks", 2, func(c *Config) { c.DDP.SyncBatchNorm, c.Optimizer.Kind, c.Optimizer.LR = true, "adam", 0.01 }},
		{"pipeline", 2, func(c *Config) { c.Pipeline, c.BatchSize = 2, 8 }},
		{"replicas", 1, func(c *Config) { c.Mode, c.Replicas, c.BatchSize = "dp", 2, 8 }},
		{"local SGD", 2, func(c *Config) { c.DDP.AverageEvery = 2 }},
	} {
		t.Run(test.name, func(t *testing.T) {
			cfg := cfg
			test.change(&cfg)
			test.stopAndResume(t, dir, cfg, []int64{1, 3, 5, 12})
		})
	}
}

// stopAndResume stops and resumes after each of some steps.
func (c resumeCase) stopAndResume(t *testing.T, dir string, cfg Config, stops []int64) {
	t.Helper()
	straight := complete(t, "local", c.world, cfg, func(_ int, _ *Config, env *Env) { env.WorkDir = dir })
	if straight.Steps != 20 {
		t.Fatalf("%d steps, want 20", straight.Steps)
	}
	checkFinal(t, straight.state)
	for i := 0; i < len(stops); i += thin.Step(3) {
		k := stops[i]
		ask, progress := stopAfter(k - 1)
		stopped := complete(t, "local", c.world, cfg, func(rank int, _ *Config, env *Env) {
			if env.WorkDir = dir; rank == 0 {
				env.Stop, env.onStep = ask, progress
			}
		})
		// Local SGD stops where ranks have the same parameters again, which may be at the end of the step in which it is asked.
		at, local := stopped.Steps, cfg.DDP.AverageEvery > 0
		if at != k && !local || at < k-1 || stopped.Stopped != (at < 20) {
			t.Fatalf("asked to stop in step %d: %+v", k, stopped.Result)
		}
		resumed := completeIn(t, stopped.checkpoints, "local", c.world, cfg, func(_ int, _ *Config, env *Env) {
			env.WorkDir, env.Resume = dir, true
		})
		if resumed.Resumed != stopped.Steps || resumed.Loss != straight.Loss || resumed.EvalLoss != straight.EvalLoss {
			t.Errorf("resumed from step %d: %+v, want the losses of %+v", k, resumed.Result, straight.Result)
		}
		t.Logf("resumed from step %d", stopped.Steps)
		sameState(t, resumed.state, straight.state)
	}
}

// checkFinal makes sure that there is something to compare.
func checkFinal(t *testing.T, s *checkpoint.State) {
	t.Helper()
	if s.Step != 20 || len(s.Tensors) < 3 {
		t.Fatalf("a straight run saved step %d and %d tensors", s.Step, len(s.Tensors))
	}
}

// The checkpoint of the best evaluation is made at the end of an epoch. Who goes on from there counts that evaluation once.
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
}

// A checkpoint that turns out to be corrupt while it is read, on whatever rank, is passed over by all, and loudly.
func TestCorruptNewestIsPassedOverByAll(t *testing.T) {
	cfg := small(2, 2, 5)
	for _, compress := range []string{"none", "int8"} {
		t.Run(compress, func(t *testing.T) {
			cfg := cfg
			cfg.DDP.Compress = compress
			straight, c := newCheckpoints(), newCheckpoints()
			for _, to := range []checkpoints{straight, c} {
				mustTrain(t, 2, cfg, func(_ int, _ *Config, env *Env) { env.Checkpoints, env.FS, env.EverySteps = to.open(t), to.fs, 7 })
			}
			c.spoil(t, 10)
			var log testkit.Journal
			r := mustTrain(t, 2, cfg, func(_ int, _ *Config, env *Env) {
				env.Checkpoints, env.FS, env.Resume = c.openWith(t, log.Logger()), c.fs, true
			})[0].Result
			if r.Resumed != 7 || r.Steps != 10 {
				t.Errorf("%+v, want a resume from step 7", r)
			}
			if !strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), "corrupt") {
				t.Errorf("nobody warned: %q", log.String())
			}
			if _, err := c.fs.Stat(filepath.Join("checkpoints", "step-000000000010.broken")); err != nil {
				t.Errorf("the corrupt one was not put aside: %v", err)
			}
			sameState(t, c.latest(t), straight.latest(t))
		})
	}
}

// spoil changes one byte in the middle of every shard of a step.
func (c checkpoints) spoil(t *testing.T, step int64) {
	t.Helper()
	folder := filepath.Join("checkpoints", stepName(step))
	entries, err := c.fs.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	spoilt := 0
	for _, e := range entries {
		if filepath.Ext(e.Name()) != ".ddpt" {
			continue
		}
		name := filepath.Join(folder, e.Name())
		f, err := c.fs.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		info, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(io.NewSectionReader(f, 0, info.Size()))
		if err != nil {
			t.Fatal(err)
		}
		data[len(data)/3] ^= 1
		c.replace(t, name, data)
		spoilt++
	}
	if spoilt != 2 {
		t.Fatalf("%d shards, want one of each rank", spoilt)
	}
}

// An attempt that a newer one has superseded ends before its first step, whether there was something to go on from or not.
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

// testdata/v1 is a checkpoint that 2 ranks have made before there was a second version of the format, after step 7 of oldJob: two epochs of
// five steps, with Adam and the residuals of int8.
func oldJob() Config {
	cfg := small(2, 2, 5)
	cfg.Optimizer.Kind, cfg.Optimizer.LR, cfg.DDP.Compress = "adam", 0.01, "int8"
	return cfg
}

// Checkpoints of the first version are gone on from, with as many ranks and with others.
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
					continue // means: see TestResidualsOfRanksThatAreGoneAreKept
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
