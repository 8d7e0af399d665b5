package mpi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"ddpbatch/internal/auth"
	"ddpbatch/mpi/store"
)

// patience is how long a test waits for what should happen at once.
const patience = 20 * time.Second

var testSecret = auth.Secret{1, 2, 3}

// testConfig is rank's part in a world on this machine.
func testConfig(s store.Store, rank, size int) InitConfig {
	cfg := DefaultConfig()
	cfg.Timeout = patience
	return InitConfig{
		Rank: rank, Size: size, Store: s, Listen: "127.0.0.1", Run: "test", Attempt: 1, Secret: testSecret, Config: cfg,
		Log: slog.New(slog.DiscardHandler),
	}
}

// newWorld returns size connected ranks; change, if not nil, adjusts the configuration of each.
func newWorld(t testing.TB, size int, change func(*InitConfig)) []*Comm {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s := store.NewMemory()
	defer s.Close()
	comms := make([]*Comm, size)
	errs := each(size, func(rank int) (err error) {
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

// each runs f as every rank at once, and returns their errors by rank.
func each(size int, f func(rank int) error) []error {
	errs := make([]error, size)
	var tasks sync.WaitGroup
	for rank := range size {
		tasks.Go(func() { errs[rank] = f(rank) })
	}
	tasks.Wait()
	return errs
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

// within runs f and fails the test if it takes longer than limit.
func within(t testing.TB, limit time.Duration, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(limit):
		t.Fatalf("not done after %v", limit)
	}
}

// eventually waits until ok.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("did not happen within %v: %s", patience, what)
		}
		time.Sleep(time.Millisecond)
	}
}

func rankName(size int) string { return fmt.Sprintf("%d_ranks", size) }
