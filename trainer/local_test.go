package trainer

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"ddpbatch/checkpoint"
	"ddpbatch/mpi"
	"ddpbatch/mpi/store"
	"ddpbatch/mpi/transport"
)

// patience is how long a world of ranks may take, on a machine that has other things to do.
const patience = 2 * time.Minute

// trainOver is train over "tcp", over "shm", or "local": with ranks that are goroutines without a network. It does not return before
// all ranks have, and fails the test if that takes too long.
func trainOver(t testing.TB, over string, size int, cfg Config, change func(rank int, cfg *Config, env *Env)) []*rank {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	world := make([]*rank, size)
	var all sync.WaitGroup
	for i, connect := range connections(ctx, t, over, size) {
		r := new(rank)
		world[i] = r
		all.Go(func() {
			comm, err := connect()
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
			r.err = errors.Join(r.err, comm.Close())
		})
	}
	all.Wait()
	if ctx.Err() != nil {
		t.Fatalf("the ranks took more than %v; rank 0 ended with %v", patience, world[0].err)
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
	t.Cleanup(meeting.Close)
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
	state  *checkpoint.State // after the last step
	losses []float64         // of the steps
}

// complete trains to the end, and fails the test if it cannot.
func complete(t testing.TB, over string, size int, cfg Config, change func(rank int, cfg *Config, env *Env)) training {
	t.Helper()
	c := newCheckpoints()
	var losses []float64
	world := trainOver(t, over, size, cfg, func(rank int, cfg *Config, env *Env) {
		if rank == 0 {
			env.Checkpoints = c.open(t)
			env.Progress = func(p Progress) { losses = append(losses, p.Loss) }
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
	return training{world[0].Result, c.latest(t), losses}
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
