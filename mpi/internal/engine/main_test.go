package engine

import (
	"context"
	"testing"

	"go.uber.org/goleak"

	"ddpbatch/internal/auth"
	"ddpbatch/internal/testkit"
	"ddpbatch/mpi/store"
	"ddpbatch/mpi/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// kind is a way to join ranks.
type kind string

const (
	inProcess kind = "in_process" // transport.Network
	overTCP   kind = "tcp"        // transport.Sockets, without shared memory
	overBoth  kind = "shared"     // transport.Sockets: data by shared memory, the rest by TCP
)

// overAll runs a test on every kind of fabric.
func overAll(t *testing.T, f func(t *testing.T, k kind)) {
	overSome(t, f, inProcess, overTCP, overBoth)
}

func overSome(t *testing.T, f func(t *testing.T, k kind), kinds ...kind) {
	for _, k := range kinds {
		t.Run(string(k), func(t *testing.T) { f(t, k) })
	}
}

// join makes the fabrics of size ranks. net is nil unless k is inProcess.
func join(t testing.TB, k kind, size int) (fabrics []transport.Fabric, net *transport.Network) {
	t.Helper()
	fabrics = make([]transport.Fabric, size)
	if k == inProcess {
		net = transport.NewNetwork(size)
		for rank := range fabrics {
			f, err := net.Fabric(rank)
			if err != nil {
				t.Fatal(err)
			}
			fabrics[rank] = f
		}
		return fabrics, net
	}
	sharing := transport.ShareNever
	if k == overBoth {
		sharing = transport.ShareAlways
	}
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	dir := store.NewMemory()
	for rank, err := range testkit.Each(size, func(rank int) error {
		f, err := transport.Connect(ctx, transport.Config{
			Rank: rank, Size: size, Listen: "127.0.0.1", Directory: dir, Secret: auth.Secret{1},
			Run: "test", Attempt: 1, Sharing: sharing,
		})
		if err == nil {
			fabrics[rank] = f
		}
		return err
	}) {
		if err != nil {
			t.Fatalf("rank %d: %v", rank, err)
		}
	}
	return fabrics, nil
}
