package trainer

import (
	"context"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"testing"

	"ddpbatch/internal/testkit"
	"ddpbatch/mpi"
)

// The number of bytes that all ranks save is known before the first save, whichever ranks hold them.
func TestTotalBytesIsWhatAllRanksSave(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"plain":          func(*Config) {},
		"ZeRO":           func(c *Config) { c.Optimizer.Zero = true },
		"pipeline":       func(c *Config) { c.Pipeline, c.BatchSize = 2, 8 },
		"int8":           func(c *Config) { c.DDP.Compress = "int8" },
		"pipelines, all": func(c *Config) { c.Pipeline, c.BatchSize, c.Optimizer.Zero, c.DDP.Compress = 2, 8, true, "powersgd" },
	} {
		cfg := deepJob()
		cfg.BatchSize, cfg.Optimizer.Kind, cfg.Optimizer.Momentum, cfg.DDP.Rank = 4, "adam", 0, 1
		change(&cfg)
		saved := complete(t, "local", 4, cfg, nil)
		list, err := saved.checkpoints.open(t).List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		want := float64(list[len(list)-1].RawBytes)
		for rank, err := range onRanks(t, "local", 4, func(ctx context.Context, comm *mpi.Comm) error {
			tr := newTrainer(cfg, Env{Comm: comm})
			defer tr.close()
			if err := tr.setUp(ctx); err != nil {
				return err
			}
			got, err := tr.totalBytes(ctx, tr.savedArrays())
			if err == nil && math.Abs(got-want) > 16 { // a few bytes that all stages have are saved once and counted once per stage
				err = fmt.Errorf("%v bytes, want %v", got, want)
			}
			return err
		}) {
			if err != nil {
				t.Errorf("%s: rank %d: %v", name, rank, err)
			}
		}
	}
}

// The state that a hook keeps is copied for every save, and the copy counts as memory.
func TestHookCopiesCountAsMemory(t *testing.T) {
	needs := regexp.MustCompile(`needs_bytes=([0-9]+)`)
	warned := func(compress string, memory int64) []string {
		c, log := newCheckpoints(), testkit.Journal{}
		cfg := small(1, 1, 5)
		cfg.DDP.Compress = compress
		mustTrain(t, 1, cfg, func(_ int, _ *Config, env *Env) {
			env.Checkpoints, env.FS, env.Async, env.MaxMemory, env.Log = c.open(t), c.fs, true, memory, log.Logger()
		})
		return needs.FindStringSubmatch(log.String())
	}
	for compress, kept := range map[string]int64{"none": 0, "int8": 4 * 32} { // a residual for each of 32 parameters
		toEncode := 6<<20 + kept
		found := warned(compress, toEncode)
		if found == nil {
			t.Fatalf("%s: nobody said that %d bytes are too little", compress, toEncode)
		}
		least, err := strconv.ParseInt(found[1], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if least += kept; warned(compress, least) != nil {
			t.Errorf("%s: %d bytes are not enough", compress, least)
		}
		if warned(compress, least-1) == nil {
			t.Errorf("%s: %d bytes are enough", compress, least-1)
		}
	}
}
