package mpi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/auth"
	"ddpbatch/internal/testkit"
	"ddpbatch/mpi/store"
	"ddpbatch/mpi/transport"

	"golang.org/x/sys/unix"
)

func TestFaultyInitConfigIsRefused(t *testing.T) {
	tests := []struct {
		name   string
		change func(*InitConfig)
		text   string
	}{
		{"rank", func(c *InitConfig) { c.Rank = 2 }, "rank 2 does not exist in a world of 2 ranks"},
		{"transport", func(c *InitConfig) { c.Config.Transport = "pigeon" },
			`transport "pigeon" is unknown: use "auto", "shm", "tcp" or "ucx"`},
		{"algorithm", func(c *InitConfig) { c.Config.Algorithm = "magic" }, `"magic"`},
		{"timeout", func(c *InitConfig) { c.Config.Timeout = -1 }, "negative"},
		{"listen", func(c *InitConfig) { c.Listen = "ib0" }, `must be an IP address, got "ib0"`},
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
	// On a busy machine the time may pass before the rank begins to wait for the others. The test then allows more.
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

// A rank with another secret is refused and logged. The others name it when their context ends.
func TestInitRefusesAnotherSecret(t *testing.T) {
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
			if !errors.As(errs[rank], &missing) || len(missing.Missing) != 1 || missing.Missing[0] != 1 ||
				!errors.Is(errs[rank], context.DeadlineExceeded) {
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
func TestStrangersDoNotDisturbInit(t *testing.T) {
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

// A secret comes back from its text. Printing a secret does not show it.
func TestSecretComesBackFromItsText(t *testing.T) {
	made, err := NewSecret()
	if err != nil {
		t.Fatal(err)
	}
	read, err := ParseSecret(made.Hex())
	if err != nil || !read.Equal(made) || made.IsZero() {
		t.Errorf("the secret comes back as another: %v", err)
	}
	if shown := fmt.Sprintf("%v %x %+v", made, made, InitConfig{Secret: made}); strings.Contains(shown, made.Hex()) {
		t.Error("printing a secret shows it")
	}
	for _, text := range []string{"", made.Hex()[1:], strings.Repeat("x", 64), strings.Repeat("0", 64)} {
		if _, err := ParseSecret(text); err == nil || text != "" && strings.Contains(err.Error(), text) {
			t.Errorf("of %d characters that are not a secret: %v", len(text), err)
		}
	}
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

// generous is how long a start may take here. docs/benchmarks.md says how long it takes on a quiet machine.
const generous = 5 * time.Second

// cpuTime returns how much processor time this process has used so far.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func skipTimed(t *testing.T) {
	t.Helper()
	switch {
	case testing.Short():
		t.Skip("times the start of many ranks: not with -short")
	case raceEnabled:
		t.Skip("times the start of many ranks: not with the race detector, which slows it down")
	}
}

func TestThousandRanksMeetInTime(t *testing.T) { // without the race detector
	skipTimed(t)
	const size = 1000
	var w []*Comm
	// The limit is on processor time, not on elapsed time: the ranks mostly wait for each other, and all of them are in this process.
	testkit.Promptly(t, generous, func() time.Duration {
		begin, used := time.Now(), cpuTime(t)
		w = newLocal(t, transport.NewNetwork(size), nil)
		took := cpuTime(t) - used
		t.Logf("%d ranks formed a group in %v, and computed for %v of that, on %d cores", size, time.Since(begin), took, runtime.NumCPU())
		return took
	})
	must(t, testkit.Each(size, func(rank int) error {
		x := []int64{1}
		if err := AllReduce(t.Context(), w[rank], x, Sum); err != nil || x[0] != size {
			t.Errorf("rank %d counted %d: %v", rank, x[0], err)
		}
		return nil
	}))
}

// startProcess is a rank that only meets the others.
func startProcess(ctx context.Context, c *Comm) error { return c.Barrier(ctx) }

func TestManyProcessesMeetInTime(t *testing.T) { // without the race detector
	skipTimed(t)
	const size = 64
	testkit.Promptly(t, 2*generous, func() time.Duration {
		begin := time.Now()
		ranks := startRanks(t, "start", "", size, testkit.Patience)
		wait(t, ranks...)
		took := time.Since(begin)
		succeeded(t, ranks)
		t.Logf("%d processes formed a group, and ended, in %v, on %d cores", size, took, runtime.NumCPU())
		return took
	})
}
