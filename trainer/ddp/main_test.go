package ddp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"ddpbatch/internal/testkit"
	"ddpbatch/mpi"
	"ddpbatch/mpi/store"
	"ddpbatch/mpi/transport"
)

func TestMain(m *testing.M) {
	if text := os.Getenv(processVariable); text != "" {
		var task measurement
		err := json.Unmarshal([]byte(text), &task)
		if err == nil {
			err = task.run()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// patience is how long a world of ranks may take, under the race detector and on a machine that has other things to do.
const patience = 5 * time.Minute

// ranks runs f as every rank of a world of size, over what this machine has, and returns what each returned.
func ranks(t testing.TB, size int, f func(ctx context.Context, comm *mpi.Comm) error) []error {
	t.Helper()
	return ranksOn(t, "auto", size, f)
}

// ranksOn is ranks over a transport of mpi.Config, or over a network within this process, "local".
func ranksOn(t testing.TB, over string, size int, f func(ctx context.Context, comm *mpi.Comm) error) []error {
	t.Helper()
	if over == "local" {
		return ranksOf(t, transport.NewNetwork(size), f)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	meeting := store.NewMemory()
	defer meeting.Close()
	cfg := mpi.DefaultConfig()
	cfg.Transport = over
	return testkit.Each(size, func(rank int) error {
		comm, err := mpi.Init(ctx, mpi.InitConfig{
			Rank: rank, Size: size, Store: meeting, Listen: "127.0.0.1",
			Run: "test", Attempt: 1, Secret: [32]byte{1}, Config: cfg,
		})
		if err != nil {
			return err
		}
		return errors.Join(f(ctx, comm), comm.Close())
	})
}

// ranksOf is ranks over a network within this process.
func ranksOf(t testing.TB, network *transport.Network, f func(ctx context.Context, comm *mpi.Comm) error) []error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	comms, err := mpi.InitLocal(ctx, network, mpi.InitConfig{Config: mpi.DefaultConfig()})
	if err != nil {
		t.Fatal(err)
	}
	return testkit.Each(network.Size(), func(rank int) error {
		return errors.Join(f(ctx, comms[rank]), comms[rank].Close())
	})
}

var transports = []string{"local", "tcp", "shm"}

// everywhere runs f as every rank of worlds of 1 to 4 ranks on all transports.
func everywhere(t *testing.T, f func(ctx context.Context, comm *mpi.Comm) error) {
	t.Helper()
	for _, over := range transports {
		for size := 1; size <= 4; size++ {
			t.Run(fmt.Sprintf("%s/%d", over, size), func(t *testing.T) { must(t, ranksOn(t, over, size, f)) })
		}
	}
}

// must fails the test if some rank failed.
func must(t testing.TB, errs []error) {
	t.Helper()
	for rank, err := range errs {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}
