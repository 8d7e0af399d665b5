package trainer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/testkit/thin"
	"ddpbatch/mpi"
)

// stopAfter closes stop when step k has been taken on rank 0, so that step k+1 is
// the last; for k = 0 it is closed already.
func stopAfter(k int64) (stop chan struct{}, progress func(Progress)) {
	stop = make(chan struct{})
	if k == 0 {
		close(stop)
	}
	return stop, func(p Progress) {
		if p.Step == k {
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
func TestResumeAtEveryStep(t *testing.T) {
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
						env.Progress = progress
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
func TestResumeAfterACrash(t *testing.T) {
	cfg := small(2, 4, 5)
	straight, c := newCheckpoints(), newCheckpoints()
	mustTrain(t, 2, cfg, func(_ int, _ *Config, env *Env) { env.Checkpoints, env.FS = straight.open(t), straight.fs })

	for i, r := range train(t, 2, cfg, func(rank int, _ *Config, env *Env) {
		env.Checkpoints, env.FS, env.EverySteps = c.open(t), c.fs, 3
		if out := env.Out.(*output); rank == 0 {
			env.Progress = func(p Progress) {
				if p.Step == 11 {
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
				env.Checkpoints, env.Log = dir, slog.New(slog.NewTextHandler(&log, nil))
			}
		})
		return world[0].Result, log.String()
	}
	for _, test := range []struct {
		name                         string
		attempt, from, epochs, after int
		warns                        bool
		tells                        string
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
		if warned := strings.Contains(log, "begins anew although"); warned != test.warns || !strings.Contains(log, test.tells) {
			t.Errorf("%s: log %q; a warning: want %v; want also %q", test.name, log, test.warns, test.tells)
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
func TestResumeOfAFinishedRun(t *testing.T) {
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
func TestMismatch(t *testing.T) {
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
func TestAllCorrupt(t *testing.T) {
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
func TestForeignCheckpoints(t *testing.T) {
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
			env.Progress = func(p Progress) {
				if p.Step == 7 {
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

func TestCancelledContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c := newCheckpoints()
	env := Env{Comm: mpi.Self(), Checkpoints: c.open(t), Progress: func(p Progress) {
		if p.Step == 3 {
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
