package trainer

import (
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/testkit"
)

// A checkpoint that does not fit the job is refused on every rank, with an error that names the difference.
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

// A data file with the same name and the same number of rows, but other rows to train on, does not fit the checkpoint.
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
		{[]byte{3, 4, 9}, ""}, // only a row to evaluate differs
	} {
		err := run(test.labels...)
		if test.want == "" && err != nil || test.want != "" && (!errors.Is(err, ErrMismatch) || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("labels %v: error %v, want %q", test.labels, err, test.want)
		}
	}
}

// If every checkpoint is corrupt, the run must not start over by itself.
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

// Checkpoints of other programs are refused, and so are checkpoints whose parts contradict each other.
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
		"negative epoch": {func(s *checkpoint.State) { s.Values[keyPosition] = []byte(`{"step":10,"epoch":-1}`) },
			checkpoint.ErrCorrupt, "impossible"},
		"another step": {func(s *checkpoint.State) { s.Step = 9 }, checkpoint.ErrCorrupt, "impossible"},
		"a huge epoch": {func(s *checkpoint.State) { s.Values[keyPosition] = []byte(`{"step":10,"epoch":4611686018427387904}`) },
			checkpoint.ErrCorrupt, "impossible"},
		"a tensor less": {func(s *checkpoint.State) { s.Tensors = s.Tensors[1:] }, ErrMismatch, "it has no model.0.weight"},
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
			for i, r := range train(t, 1, cfg,
				func(_ int, _ *Config, env *Env) { env.Checkpoints, env.FS, env.Resume = other.open(t), other.fs, true }) {
				if !errors.Is(r.err, test.class) || !strings.Contains(r.err.Error(), test.want) {
					t.Errorf("rank %d: error %v, want %v with %q", i, r.err, test.class, test.want)
				}
			}
		})
	}
}

// If a rank finds that the newest checkpoint is corrupt while it reads it, all ranks resume from an older one, and the log has a warning.
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
