package mpi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/auth"
	"ddpbatch/internal/testkit"
	"ddpbatch/mpi/store"
	"ddpbatch/mpi/transport"
)

// isRunning tells whether the rank is in a collective.
func (c *Comm) isRunning() bool {
	return c.core.turns.taken.Load()
}

func TestCancelInCollective(t *testing.T) {
	w := newWorld(t, 3, nil)
	ctx, cancel := context.WithCancel(t.Context())
	errs := make(chan []error, 1)
	buf := [2][]float32{make([]float32, 1<<20), make([]float32, 1<<20)}
	go func() {
		errs <- testkit.Each(2, func(rank int) error { // rank 2 does not come
			if rank == 0 {
				return AllReduce(ctx, w[0], buf[0], Sum)
			}
			return AllReduce(t.Context(), w[1], buf[1], Sum)
		})
	}()
	testkit.Eventually(t, "both ranks are in the collective", func() bool { return w[0].isRunning() && w[1].isRunning() })
	var got []error
	testkit.Within(t, testkit.Patience, func() {
		cancel()
		got = <-errs
	})
	clear(buf[0]) // the caller's again: the race detector would see another in it
	if !errors.Is(got[0], context.Canceled) {
		t.Errorf("rank 0 got %v", got[0])
	}
	if !errors.Is(got[1], ErrAborted) || errors.Is(got[1], context.Canceled) || !strings.Contains(got[1].Error(), "rank 0 gave up") {
		t.Errorf("rank 1 got %v", got[1])
	}
	// Broken: every later call returns the first failure.
	if again := w[0].Barrier(t.Context()); again != got[0] {
		t.Errorf("later got %v, want %v", again, got[0])
	}
	// The rank that did not come learns it when it does.
	if err := AllReduce(t.Context(), w[2], make([]float32, 1<<20), Sum); !errors.Is(err, ErrAborted) {
		t.Errorf("rank 2 got %v", err)
	}
}

func TestCancelledBefore(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w := newWorld(t, 2, nil)
	for name, c := range map[string]*Comm{"of_two": w[0], "self": Self()} {
		if err := c.Barrier(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// A rank never comes: the others fail after Timeout, and one names it.
func TestPeerNeverComes(t *testing.T) {
	promptly(t, func() time.Duration {
		w := newImpatient(t, "auto", 3, 300*time.Millisecond)
		begin := time.Now()
		errs := testkit.Each(2, func(rank int) error { return w[rank].Barrier(t.Context()) })
		took := time.Since(begin) - 300*time.Millisecond
		if took < 0 {
			t.Errorf("the time-out came %v too early", -took)
		}
		if starved(errs...) {
			return again
		}
		named := false
		for rank, err := range errs {
			if !errors.Is(err, ErrTimeout) || !strings.Contains(err.Error(), "barrier #1") {
				t.Errorf("rank %d got %v", rank, err)
			}
			named = named || strings.Contains(err.Error(), "rank 2: no progress for 300ms: it has called nothing yet")
		}
		if !named {
			t.Errorf("nobody names rank 2: %v", errs)
		}
		return took
	})
}

func TestInitFaults(t *testing.T) {
	tests := []struct {
		name   string
		change func(*InitConfig)
		text   string
	}{
		{"rank", func(c *InitConfig) { c.Rank = 2 }, "rank 2 of 2: there is no such rank"},
		{"transport", func(c *InitConfig) { c.Config.Transport = "pigeon" }, `transport "pigeon" is not known: use "auto", "shm" or "tcp"`},
		{"algorithm", func(c *InitConfig) { c.Config.Algorithm = "magic" }, `"magic"`},
		{"timeout", func(c *InitConfig) { c.Config.Timeout = -1 }, "negative"},
		{"listen", func(c *InitConfig) { c.Listen = "ib0" }, `"ib0" is no IP address`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := store.NewMemory()
			defer s.Close()
			cfg := testConfig(s, 0, 2)
			tt.change(&cfg)
			if _, err := Init(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("got %v, want %q", err, tt.text)
			}
		})
	}
}

func TestInitGivesUpAfterTimeout(t *testing.T) {
	const want = "init rank 0 of 2: connect ranks: rank 0 of 2 did not meet rank 1"
	// A busy machine may need the whole time before the rank begins to wait for others: then it gets more.
	for timeout := 50 * time.Millisecond; ; timeout *= 4 {
		s := store.NewMemory()
		cfg := testConfig(s, 0, 2)
		cfg.Config.Timeout = timeout
		_, err := Init(t.Context(), cfg)
		s.Close()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v", err)
		}
		if strings.Contains(err.Error(), want) {
			return
		}
		if 4*timeout > testkit.Patience {
			t.Fatalf("got %v, want %q", err, want)
		}
	}
}

// A rank with another secret is refused and logged; the others name it when
// their context ends.
func TestInitWrongSecret(t *testing.T) {
	t.Parallel() // it waits
	ending(t, 3*time.Second, func(ctx context.Context) error {
		s := store.NewMemory()
		defer s.Close()
		var log testkit.Journal
		errs := testkit.Each(3, func(rank int) error {
			cfg := testConfig(s, rank, 3)
			if rank == 1 {
				cfg.Secret = auth.Secret{9}
			} else {
				cfg.Log = log.Logger()
			}
			_, err := Init(ctx, cfg)
			return err
		})
		for _, rank := range []int{0, 2} {
			var missing *transport.MissingError
			if !errors.As(errs[rank], &missing) || len(missing.Missing) != 1 || missing.Missing[0] != 1 || !errors.Is(errs[rank], context.DeadlineExceeded) {
				return fmt.Errorf("rank %d got %v", rank, errs[rank])
			}
		}
		if errs[1] == nil || !strings.Contains(log.String(), "transport: connection refused") {
			return fmt.Errorf("rank 1 got %v; logged %q", errs[1], log.String())
		}
		return nil
	})
}

// Connections that send rubbish while ranks meet do not disturb them.
func TestInitAmongStrangers(t *testing.T) {
	s := store.NewMemory()
	defer s.Close()
	comms := make([]*Comm, 2)
	done := make(chan []error, 1)
	ready := make(chan struct{})
	go func() {
		done <- testkit.Each(2, func(rank int) (err error) {
			if rank == 1 {
				<-ready
			}
			comms[rank], err = Init(t.Context(), testConfig(s, rank, 2))
			return err
		})
	}()
	addr, err := s.Get(t.Context(), "mpi/1/transport/0")
	if err != nil {
		t.Fatal(err)
	}
	host, _, _ := strings.Cut(string(addr), " ")
	for i := range 40 {
		conn, err := net.Dial("tcp", host)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.Write([]byte(strings.Repeat("rubbish", i*i)))
	}
	close(ready)
	must(t, <-done)
	must(t, testkit.Each(2, func(rank int) error { return comms[rank].Barrier(t.Context()) }))
	closeAll(comms)
}

func TestSelf(t *testing.T) {
	c := Self()
	x := []float32{1, 2}
	if err := errors.Join(AllReduce(t.Context(), c, x, Sum), Broadcast(t.Context(), c, x, 0), c.Barrier(t.Context())); err != nil {
		t.Error(err)
	}
	if c.Rank() != 0 || c.Size() != 1 || x[0] != 1 || x[1] != 2 {
		t.Errorf("rank %d of %d has %v", c.Rank(), c.Size(), x)
	}
	if err := errors.Join(c.Close(), c.Close()); err != nil {
		t.Error(err)
	}
	if err := c.Barrier(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close got %v", err)
	}
}
