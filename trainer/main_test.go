package trainer

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"ddpbatch/checkpoint"
	"ddpbatch/checkpoint/npy"
	"ddpbatch/internal/testkit"
	"ddpbatch/internal/testkit/vfstest"
	"ddpbatch/internal/vfs"
	"ddpbatch/mpi"
	"ddpbatch/mpi/store"
	"ddpbatch/mpi/transport"
	"ddpbatch/trainer/data"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rank holds the outcome of one rank of a test's world.
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
// in a rank's environment and its config. It may be nil.
func train(t testing.TB, size int, cfg Config, change func(rank int, cfg *Config, env *Env)) []*rank {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	shared := store.NewMemory()
	defer shared.Close()
	world := make([]*rank, size)
	var all sync.WaitGroup
	for i := range size {
		r := new(rank)
		world[i] = r
		all.Go(func() {
			comm, err := mpi.Init(ctx, mpi.InitConfig{
				Rank: i, Size: size, Store: shared, Listen: "127.0.0.1",
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

// mustTrain is like train, and fails the test if a rank fails or if the ranks' results differ.
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

// small returns a job on generated data with one hidden layer and an evaluation, fast enough to run many
// times. In a world of the given size, each epoch has the given number of steps. The rows do not divide evenly.
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

// checkpoints is a folder in memory that can be opened any number of times.
type checkpoints struct{ fs vfs.FS }

func newCheckpoints() checkpoints { return checkpoints{vfstest.NewMem()} }

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

// latest returns the state of the newest checkpoint.
func (c checkpoints) latest(t testing.TB) *checkpoint.State {
	t.Helper()
	s, _, err := c.open(t).Latest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// corrupt overwrites the manifest of a step's checkpoint with bytes that are not valid.
func (c checkpoints) corrupt(t testing.TB, step int64) {
	t.Helper()
	c.replace(t, filepath.Join("checkpoints", stepName(step), "MANIFEST.json"), []byte("{"))
}

func stepName(step int64) string { return fmt.Sprintf("step-%012d", step) }

// replace replaces a file's contents.
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

// steps returns the steps that have a checkpoint, the oldest first.
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

// patience limits the time of a world of ranks. It is enough on a busy machine.
const patience = 5 * time.Minute

// onRanks runs f as every rank of a world over "tcp", "shm" or "local", which is a network within this process. It waits for all ranks and
// returns their errors. It fails the test if that takes too long.
func onRanks(t testing.TB, over string, size int, f func(ctx context.Context, comm *mpi.Comm) error) []error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	connect := connections(ctx, t, over, size)
	errs := testkit.Each(size, func(rank int) error {
		comm, err := connect[rank]()
		if err != nil {
			return err
		}
		return errors.Join(f(ctx, comm), comm.Close())
	})
	if ctx.Err() != nil {
		t.Fatalf("the ranks took more than %v, and ended with %v", patience, errs)
	}
	return errs
}

// trainOver is like train, over any transport of onRanks.
func trainOver(t testing.TB, over string, size int, cfg Config, change func(rank int, cfg *Config, env *Env)) []*rank {
	t.Helper()
	world := make([]*rank, size)
	for i := range world {
		world[i] = new(rank)
	}
	errs := onRanks(t, over, size, func(ctx context.Context, comm *mpi.Comm) error {
		r := world[comm.Rank()]
		ctx, r.out.kill = context.WithCancel(ctx)
		defer r.out.kill()
		cfg, env := cfg, Env{Comm: comm, Out: &r.out}
		if change != nil {
			change(comm.Rank(), &cfg, &env)
		}
		var err error
		r.Result, err = Run(ctx, cfg, env)
		return err
	})
	for i, r := range world {
		r.err = errs[i]
	}
	return world
}

// connections returns a function for each rank that returns the rank's Comm.
func connections(ctx context.Context, t testing.TB, over string, size int) []func() (*mpi.Comm, error) {
	t.Helper()
	connect := make([]func() (*mpi.Comm, error), size)
	if over == "local" {
		comms, err := mpi.InitLocal(ctx, transport.NewNetwork(size), mpi.InitConfig{Config: mpi.DefaultConfig()})
		if err != nil {
			t.Fatal(err)
		}
		for i := range connect {
			connect[i] = func() (*mpi.Comm, error) { return comms[i], nil }
		}
		return connect
	}
	shared := store.NewMemory()
	t.Cleanup(func() { _ = shared.Close() })
	for i := range connect {
		connect[i] = func() (*mpi.Comm, error) {
			cfg := mpi.DefaultConfig()
			cfg.Transport = over
			return mpi.Init(ctx, mpi.InitConfig{
				Rank: i, Size: size, Store: shared, Listen: "127.0.0.1", Run: "test", Attempt: 1, Secret: [32]byte{1}, Config: cfg,
			})
		}
	}
	return connect
}

// training holds the outcome of a run that did not fail.
type training struct {
	Result
	checkpoints checkpoints
	state       *checkpoint.State // after the last step
	losses      []float64         // of the steps
}

// complete trains until the run ends, and fails the test if a rank fails.
func complete(t testing.TB, over string, size int, cfg Config, change func(rank int, cfg *Config, env *Env)) training {
	t.Helper()
	return completeIn(t, newCheckpoints(), over, size, cfg, change)
}

// completeIn is like complete, with checkpoints in c, which may hold some already.
func completeIn(t testing.TB, c checkpoints, over string, size int, cfg Config, change func(rank int, cfg *Config, env *Env)) training {
	t.Helper()
	var losses []float64
	var steps int64 // the number of steps that the run expected
	world := trainOver(t, over, size, cfg, func(rank int, cfg *Config, env *Env) {
		if env.FS = c.fs; rank == 0 {
			env.Checkpoints, env.Async = c.open(t), true
			env.onStep = func(p stepDone) {
				if losses = append(losses, p.loss); steps == 0 {
					steps = p.steps
				}
			}
		}
		if change != nil {
			change(rank, cfg, env)
		}
	})
	for i, r := range world {
		if r.err != nil {
			t.Fatalf("rank %d: %v", i, r.err)
		}
		if r.Result != world[0].Result {
			t.Fatalf("rank %d has %+v, rank 0 %+v", i, r.Result, world[0].Result)
		}
	}
	if r := world[0].Result; !r.Stopped && cfg.Evaluate.Patience == 0 && losses != nil && r.Steps != steps {
		t.Errorf("the run had %d steps, and said %d", r.Steps, steps)
	}
	return training{world[0].Result, c, c.latest(t), losses}
}

// floatsOf returns the values of the tensor with the given name.
func floatsOf(t testing.TB, s *checkpoint.State, name string) []float32 {
	t.Helper()
	for _, tensor := range s.Tensors {
		if tensor.Name == name {
			v := make([]float32, elements(tensor.Shape))
			if err := tensor.Float32s(v); err != nil {
				t.Fatal(err)
			}
			return v
		}
	}
	t.Fatalf("the checkpoint has no %s", name)
	return nil
}

func elements(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

// imageJob returns a job that trains a CNN with batch normalization on 48 random images of 5 classes.
func imageJob(t testing.TB) (dir string, cfg Config) {
	t.Helper()
	const rows = 48
	dir = t.TempDir()
	writeNPY(t, dir, "x.npy", []int{rows, 2, 9, 8}, normals(3, rows*2*9*8))
	writeNPY(t, dir, "y.npy", []int{rows}, classesOf(4, rows, 5))
	cfg = DefaultConfig()
	cfg.Epochs, cfg.BatchSize, cfg.Optimizer.LR = 2, 4, 0.05
	cfg.Data.Kind, cfg.Data.InputFile, cfg.Data.TargetFile = "npy", "x.npy", "y.npy"
	cfg.Model.Kind, cfg.Model.Channels, cfg.Model.Hidden, cfg.Model.BatchNorm = "cnn", []int{4, 6}, []int{10}, true
	return dir, cfg
}

// textJob returns a job that trains a GPT with 2 blocks on 48 rows of text.
func textJob(t testing.TB) (dir string, cfg Config) {
	t.Helper()
	dir = t.TempDir()
	text := bytes.Repeat([]byte("The quick brown fox jumps over the lazy dog. \xff"), 13)[:48*12+1]
	if err := os.WriteFile(filepath.Join(dir, "text"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	cfg = DefaultConfig()
	cfg.Epochs, cfg.BatchSize = 2, 4
	cfg.Data.Kind, cfg.Data.Path = "text", "text"
	cfg.Model.Kind, cfg.Model.Layers, cfg.Model.Heads, cfg.Model.Width, cfg.Model.Context = "gpt", 2, 2, 16, 12
	return dir, cfg
}

// deepJob returns a job that trains an MLP of four layers on 48 rows of generated data.
func deepJob() Config {
	cfg := DefaultConfig()
	cfg.Epochs, cfg.BatchSize, cfg.Loss, cfg.Seed = 2, 4, "mse", 3
	cfg.Model.Hidden, cfg.Model.Activation = []int{9, 8, 7}, "tanh"
	cfg.Data.Kind, cfg.Data.Rows, cfg.Data.Inputs, cfg.Data.Outputs, cfg.Data.Noise = "generated", 48, 5, 3, 0.1
	cfg.Optimizer.Momentum = 0.9
	return cfg
}

// writeNPY writes an array to a file in dir.
func writeNPY[T float32 | int64](t testing.TB, dir, name string, shape []int, v []T) {
	t.Helper()
	dtype := "float32"
	if _, whole := any(v).([]int64); whole {
		dtype = "int64"
	}
	write := func(w io.Writer) error { return binary.Write(w, binary.LittleEndian, v) }
	if err := npy.WriteFile(t.Context(), filepath.Join(dir, name), dtype, shape, write); err != nil {
		t.Fatal(err)
	}
}

// mnist returns a job that trains an MLP 784-128-10 on 1,000 real digits and evaluates it on 500.
func mnist(t testing.TB) Config {
	cfg := DefaultConfig()
	cfg.Data.Kind = "mnist"
	cfg.Data.Images = sample(t, "mnist", "images-idx3-ubyte.gz")
	cfg.Data.Labels = sample(t, "mnist", "labels-idx1-ubyte.gz")
	cfg.Data.Train, cfg.Data.Eval = "0:1000", "1000:1500"
	return cfg
}

// sample returns the absolute path of a file of real data in data/testdata.
func sample(t testing.TB, parts ...string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(append([]string{"data", "testdata"}, parts...)...))
	if err != nil {
		t.Fatal(err)
	}
	return path
}
