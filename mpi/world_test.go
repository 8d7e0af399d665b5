package mpi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

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
	return formed(t, 1, func() ([]*Comm, error) { return meetOn(t.Context(), over, size, change) })
}

// newImpatient is newWorldOn with a time-out for which the test waits, and in which ranks must also meet: where a busy machine is slower,
// they do so once more.
func newImpatient(t testing.TB, over string, size int, timeout time.Duration) []*Comm {
	t.Helper()
	return formed(t, 20, func() ([]*Comm, error) {
		return meetOn(t.Context(), over, size, func(cfg *InitConfig) { cfg.Config.Timeout = timeout })
	})
}

// ending plays what ends when its context does, and in which others must meet before: where a busy machine is slower, once more with more time.
func ending(t *testing.T, limit time.Duration, play func(ctx context.Context) error) {
	t.Helper()
	for ; ; limit *= 4 {
		last := limit >= testkit.Patience
		ctx, cancel := context.WithTimeout(t.Context(), min(limit, testkit.Patience))
		err := play(ctx)
		cancel()
		if err == nil {
			return
		}
		if last {
			t.Error(err)
			return
		}
		t.Logf("within %v: %v", limit, err)
	}
}

// formed is a world that has met in one of so many tries.
func formed(t testing.TB, tries int, meet func() ([]*Comm, error)) []*Comm {
	t.Helper()
	for {
		comms, err := meet()
		if err == nil {
			closeAtEnd(t, comms)
			return comms
		}
		if tries--; tries == 0 {
			t.Fatal(err)
		}
		t.Log(err)
	}
}

// meetOn connects ranks over one of transports.
func meetOn(ctx context.Context, over string, size int, change func(*InitConfig)) ([]*Comm, error) {
	if over == "local" {
		return meetIn(ctx, transport.NewNetwork(size), change)
	}
	return meet(ctx, size, func(cfg *InitConfig) {
		if cfg.Config.Transport = over; over == "machines" {
			cfg.Config.Transport = "auto"
			cfg.Store = machines{cfg.Store, cfg.Rank, widthOf(size)}
		}
		if change != nil {
			change(cfg)
		}
	})
}

// newLocal is newWorld on a network within this process. The configuration is the same for all ranks.
func newLocal(t testing.TB, network *transport.Network, change func(*InitConfig)) []*Comm {
	t.Helper()
	return formed(t, 1, func() ([]*Comm, error) { return meetIn(t.Context(), network, change) })
}

func meetIn(ctx context.Context, network *transport.Network, change func(*InitConfig)) ([]*Comm, error) {
	cfg := testConfig(nil, 0, network.Size())
	if change != nil {
		change(&cfg)
	}
	return InitLocal(ctx, network, cfg)
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

// someTransports are the one within this process and one other, drawn: for what hardly depends on the transport, and takes long.
func someTransports() []string {
	if *conformRounds > 1 {
		return transports
	}
	others := slices.DeleteFunc(slices.Clone(transports), func(over string) bool { return over == "local" })
	return []string{"local", others[rand.IntN(len(others))]}
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
	return formed(t, 1, func() ([]*Comm, error) { return meet(t.Context(), size, change) })
}

// meet connects ranks; where some fail, no Comm is left.
func meet(ctx context.Context, size int, change func(*InitConfig)) ([]*Comm, error) {
	ctx, cancel := context.WithTimeout(ctx, testkit.Patience)
	defer cancel()
	s := store.NewMemory()
	defer s.Close()
	comms := make([]*Comm, size)
	err := errors.Join(testkit.Each(size, func(rank int) (err error) {
		cfg := testConfig(s, rank, size)
		if change != nil {
			change(&cfg)
		}
		comms[rank], err = Init(ctx, cfg)
		return err
	})...)
	if err == nil {
		return comms, nil
	}
	for _, c := range comms {
		if c != nil {
			c.Close()
		}
	}
	return nil, err
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
