package ddp

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"ddpbatch/mpi"
	"ddpbatch/mpi/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ranks runs f as every rank of a world of size, over TCP on the loopback, and returns
// what each returned.
func ranks(t testing.TB, size int, f func(ctx context.Context, comm *mpi.Comm) error) []error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	meeting := store.NewMemory()
	defer meeting.Close()
	errs := make([]error, size)
	var all sync.WaitGroup
	for rank := range size {
		all.Go(func() {
			comm, err := mpi.Init(ctx, mpi.InitConfig{
				Rank: rank, Size: size, Store: meeting, Listen: "127.0.0.1",
				Run: "test", Attempt: 1, Secret: [32]byte{1}, Config: mpi.DefaultConfig(),
			})
			if err != nil {
				errs[rank] = err
				return
			}
			errs[rank] = errors.Join(f(ctx, comm), comm.Close())
		})
	}
	all.Wait()
	return errs
}
