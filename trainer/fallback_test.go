package trainer

import (
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/testkit"
	"ddpbatch/internal/vfs"
)

// A checkpoint that turns out to be corrupt while it is read, on whatever rank, is passed over by all, and loudly.
func TestCorruptDataOfTheNewest(t *testing.T) {
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
func TestSupersededBeforeTheFirstStep(t *testing.T) {
	for _, resume := range []bool{true, false} {
		fs := vfs.NewMem()
		dir, err := checkpoint.Open("checkpoints", checkpoint.Options{
			FS: fs, Run: "test", Attempt: 1, Fence: func() error { return errors.New("attempt 2 has begun") },
		})
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range train(t, 2, small(2, 1, 5), func(rank int, _ *Config, env *Env) {
			env.Checkpoints, env.FS, env.Resume = dir, fs, resume
			env.Progress = func(Progress) { t.Error("a step was taken") }
		}) {
			if !errors.Is(r.err, checkpoint.ErrFenced) || errors.Is(r.err, ErrElsewhere) != (i > 0) {
				t.Errorf("rank %d: %v, want ErrFenced, of rank 0", i, r.err)
			}
		}
	}
}
