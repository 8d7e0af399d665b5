package trainer

import (
	"context"
	"errors"
	"testing"
	"time"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/testkit"
	"ddpbatch/mpi"
	"ddpbatch/mpi/store"
	"ddpbatch/mpi/transport"
)

// patience is how long a world of ranks may take, on a machine that has other things to do.
const patience = 5 * time.Minute

// onRanks runs f as every rank of a world over "tcp", over "shm", or "local": with ranks that are goroutines without a network. It returns
// when all have, with their errors, and fails the test if that takes too long.
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

// trainOver is train over any transport.
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

// connections returns what gives each rank its communicator.
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
	meeting := store.NewMemory()
	t.Cleanup(func() { _ = meeting.Close() })
	for i := range connect {
		connect[i] = func() (*mpi.Comm, error) {
			cfg := mpi.DefaultConfig()
			cfg.Transport = over
			return mpi.Init(ctx, mpi.InitConfig{
				Rank: i, Size: size, Store: meeting, Listen: "127.0.0.1", Run: "test", Attempt: 1, Secret: [32]byte{1}, Config: cfg,
			})
		}
	}
	return connect
}

// training is what a run without faults came to.
type training struct {
	Result
	checkpoints checkpoints
	state       *checkpoint.State // after the last step
	losses      []float64         // of the steps
}

// complete trains to the end, and fails the test if it cannot.
func complete(t testing.TB, over string, size int, cfg Config, change func(rank int, cfg *Config, env *Env)) training {
	t.Helper()
	return completeIn(t, newCheckpoints(), over, size, cfg, change)
}

// completeIn is complete with checkpoints in c, where there may be some already.
func completeIn(t testing.TB, c checkpoints, over string, size int, cfg Config, change func(rank int, cfg *Config, env *Env)) training {
	t.Helper()
	var losses []float64
	var steps int64 // that the run said it would have
	world := trainOver(t, over, size, cfg, func(rank int, cfg *Config, env *Env) {
		if env.FS = c.fs; rank == 0 {
			env.Checkpoints, env.Async = c.open(t), true
			env.Progress = func(p Progress) {
				if losses = append(losses, p.Loss); steps == 0 {
					steps = p.Steps
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

// floatsOf are the values of the tensor of a name.
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
