package trainer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/vfs"
	"ddpbatch/mpi"
	"ddpbatch/mpi/store"
	"ddpbatch/trainer/data"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rank is what one rank of a test's world came to.
type rank struct {
	Result
	err error
	out output
}

// output is what a rank prints. kill ends the rank's context, as the end of its process would.
type output struct {
	bytes.Buffer
	kill context.CancelFunc
}

// train runs cfg on a world of size ranks, over TCP on the loopback. change may set anything
// in a rank's environment, and its config; nil: nothing.
func train(t testing.TB, size int, cfg Config, change func(rank int, cfg *Config, env *Env)) []*rank {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	meeting := store.NewMemory()
	defer meeting.Close()
	world := make([]*rank, size)
	var all sync.WaitGroup
	for i := range size {
		r := new(rank)
		world[i] = r
		all.Go(func() {
			comm, err := mpi.Init(ctx, mpi.InitConfig{
				Rank: i, Size: size, Store: meeting, Listen: "127.0.0.1",
				Run: "test", Attempt: 1, Secret: [32]byte{1}, Config: mpi.DefaultConfig(),
			})
			if err != nil {
				r.err = err
				return
			}
			own, kill := context.WithCancel(ctx)
			defer kill()
			r.out.kill = kill
			cfg, env := cfg, Env{Comm: comm, Out: &r.out}
			if change != nil {
				change(i, &cfg, &env)
			}
			r.Result, r.err = Run(own, cfg, env)
			if err := comm.Close(); err != nil {
				r.err = errors.Join(r.err, err)
			}
		})
	}
	all.Wait()
	return world
}

// mustTrain is train for runs in which nothing may fail.
func mustTrain(t testing.TB, size int, cfg Config, change func(rank int, cfg *Config, env *Env)) []*rank {
	t.Helper()
	world := train(t, size, cfg, change)
	for i, r := range world {
		if r.err != nil {
			t.Fatalf("rank %d: %v", i, r.err)
		}
		if r.Result != world[0].Result {
			t.Fatalf("rank %d has %+v, rank 0 %+v", i, r.Result, world[0].Result)
		}
	}
	return world
}

// small is a job on generated data with one hidden layer and an evaluation, fast enough to run many
// times. It takes steps steps an epoch on each rank of any world; the rows do not divide evenly.
func small(world, epochs, steps int) Config {
	cfg := DefaultConfig()
	cfg.Epochs, cfg.Seed, cfg.Loss = epochs, 3, "mse"
	cfg.BatchSize = 8 / world
	cfg.Model.Hidden = []int{5}
	cfg.Model.Activation = "tanh"
	cfg.Data.Kind, cfg.Data.Inputs, cfg.Data.Outputs, cfg.Data.Noise = "generated", 3, 2, 0.1
	cfg.Data.Rows = 8*steps + 2
	cfg.Data.Train = rowRange(0, 8*steps-3)
	cfg.Data.Eval = rowRange(8*steps-3, 8*steps+2)
	cfg.Optimizer.Momentum = 0.9
	return cfg
}

func rowRange(first, end int) string { return data.Range{First: first, End: end}.String() }

// checkpoints is a folder in memory that opens as often as wanted.
type checkpoints struct{ fs vfs.FS }

func newCheckpoints() checkpoints { return checkpoints{vfs.NewMem()} }

func (c checkpoints) open(t testing.TB) *checkpoint.Dir {
	t.Helper()
	return c.openWith(t, nil)
}

func (c checkpoints) openWith(t testing.TB, log *slog.Logger) *checkpoint.Dir {
	t.Helper()
	dir, err := checkpoint.Open("checkpoints", checkpoint.Options{FS: c.fs, Run: "test", Attempt: 1, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// latest is the newest state.
func (c checkpoints) latest(t testing.TB) *checkpoint.State {
	t.Helper()
	s, _, err := c.open(t).Latest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// corrupt spoils the commit record of a step.
func (c checkpoints) corrupt(t testing.TB, step int64) {
	t.Helper()
	c.replace(t, filepath.Join("checkpoints", stepName(step), "MANIFEST.json"), []byte("{"))
}

func stepName(step int64) string { return fmt.Sprintf("step-%012d", step) }

// replace gives a file another content.
func (c checkpoints) replace(t testing.TB, name string, data []byte) {
	t.Helper()
	if err := c.fs.Remove(name); err != nil {
		t.Fatal(err)
	}
	f, err := c.fs.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// steps are the steps of which there is a checkpoint, the oldest first.
func (c checkpoints) steps(t testing.TB) []int64 {
	t.Helper()
	list, err := c.open(t).List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var steps []int64
	for _, info := range list {
		steps = append(steps, info.Step)
	}
	return steps
}
