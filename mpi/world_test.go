package mpi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"ddpbatch/internal/auth"
	"ddpbatch/internal/testkit"
	"ddpbatch/mpi/store"
)

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
	t.Cleanup(func() {
		for _, c := range comms {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
	})
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
