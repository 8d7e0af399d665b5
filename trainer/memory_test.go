package trainer

import (
	"regexp"
	"runtime"
	"strings"
	"testing"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/vfs"
)

// encoding is where a goroutine is that encodes, in its stack.
var encoding = regexp.MustCompile(`/shard\.\(\*\w+\)\.work\(`)

// Rank 0 encodes with no more goroutines than it has threads, and than its memory has room for, whoever has opened the folder.
func TestEncodersOfRank0(t *testing.T) { // without the race detector
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
		looked := checkpoints{vfs.NewInjector(c.fs, func(_ int, op vfs.Op) vfs.Fault {
			if op.Kind == "write" && strings.Contains(op.Path, "shard") {
				all := stacks[:runtime.Stack(stacks, true)]
				most = max(most, len(encoding.FindAll(all, -1)))
			}
			return vfs.Fault{}
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
func TestTooLittleMemoryToEncode(t *testing.T) {
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
