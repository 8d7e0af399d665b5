package mpi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"

	"ddpbatch/internal/auth"
	"ddpbatch/internal/testkit"
	"ddpbatch/mpi/store"
	"ddpbatch/mpi/transport"
)

// transports are what tests go over: a network within this process, loopback, shared memory, and the last two together, with ranks
// that take themselves for those of several machines.
var transports = []string{"local", "tcp", "shm", "machines"}

// newWorldOn is newWorld on one of transports.
func newWorldOn(t testing.TB, over string, size int, change func(*InitConfig)) []*Comm {
	t.Helper()
	if over != "local" {
		return newWorld(t, size, func(cfg *InitConfig) {
			if cfg.Config.Transport = over; over == "machines" {
				cfg.Config.Transport = "auto"
				cfg.Store = machines{cfg.Store, cfg.Rank, widthOf(size)}
			}
			if change != nil {
				change(cfg)
			}
		})
	}
	return newLocal(t, transport.NewNetwork(size), change)
}

// newLocal is newWorld on a network within this process. The configuration is the same for all ranks.
func newLocal(t testing.TB, network *transport.Network, change func(*InitConfig)) []*Comm {
	t.Helper()
	cfg := testConfig(nil, 0, network.Size())
	if change != nil {
		change(&cfg)
	}
	comms, err := InitLocal(t.Context(), network, cfg)
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, comms)
	return comms
}

// sizesOn are those of sizes to test on a transport: all on the one within this process, which costs little, and half of them, others
// in each run, on the others.
func sizesOn(over string, sizes []int) []int {
	if over == "local" || *conformRounds > 1 {
		return sizes
	}
	some := slices.Clone(sizes)
	rand.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
	some = some[:(len(some)+1)/2]
	slices.Sort(some)
	return some
}

// sampleOf are those of sizes to test on a transport with what takes long: half of them, or all, on the one within this process, and one
// on the others.
func sampleOf(over string, sizes []int) []int {
	switch {
	case *conformRounds > 1 || over == "local" && !raceEnabled:
		return sizes
	case over == "local":
		return sizesOn("half", sizes)
	}
	i := rand.IntN(len(sizes))
	return sizes[i : i+1 : i+1] // appending must not change them
}

// everywhere runs f as every rank of worlds of some of the given sizes on all transports.
func everywhere(t *testing.T, sizes []int, f func(ctx context.Context, c *Comm) error) {
	t.Helper()
	for _, over := range transports {
		for _, size := range sizesOn(over, sizes) {
			t.Run(over+"/"+rankName(size), func(t *testing.T) {
				w := newWorldOn(t, over, size, nil)
				must(t, testkit.Each(size, func(rank int) error { return f(t.Context(), w[rank]) }))
			})
		}
	}
}

// closeAtEnd has the test fail if a Comm cannot be closed.
func closeAtEnd(t testing.TB, comms []*Comm) {
	t.Cleanup(func() {
		if err := closeAll(comms); err != nil {
			t.Error(err)
		}
	})
}

// closeAll closes all at once, as ranks do.
func closeAll(comms []*Comm) error {
	return errors.Join(testkit.Each(len(comms), func(rank int) error { return comms[rank].Close() })...)
}

var testSecret = auth.Secret{1, 2, 3}

// testConfig is rank's part in a world on this machine.
func testConfig(s store.Store, rank, size int) InitConfig {
	cfg := DefaultConfig()
	cfg.Timeout = testkit.Patience
	return InitConfig{
		Rank: rank, Size: size, Store: s, Listen: "127.0.0.1", Run: "test", Attempt: 1, Secret: testSecret, Config: cfg,
		Log: slog.New(slog.DiscardHandler),
	}
}

// newWorld returns size connected ranks; change, if not nil, adjusts the configuration of each.
func newWorld(t testing.TB, size int, change func(*InitConfig)) []*Comm {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	s := store.NewMemory()
	defer s.Close()
	comms := make([]*Comm, size)
	errs := testkit.Each(size, func(rank int) (err error) {
		cfg := testConfig(s, rank, size)
		if change != nil {
			change(&cfg)
		}
		comms[rank], err = Init(ctx, cfg)
		return err
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, comms)
	return comms
}

// must fails the test if some rank failed.
func must(t testing.TB, errs []error) {
	t.Helper()
	for rank, err := range errs {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}

func rankName(size int) string { return fmt.Sprintf("%d_ranks", size) }
