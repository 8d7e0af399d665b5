package mpi

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/testkit"
	"ddpbatch/mpi/transport"
)

// All connections of a rank, to which all others have one, are cut in the middle of each of everyCall.
func TestCutInTheMiddle(t *testing.T) {
	const size, victim = 3, 0 // higher ranks dial lower ones
	for _, tt := range everyCall {
		t.Run(tt.name, func(t *testing.T) { testCut(t, "tcp", size, victim, tt, "rank 0: connection lost") })
	}
}

// The connections between two machines are cut, in the middle of each of everyCall, as far as they are those of one rank. Who
// shares memory with it cannot know which end of them is to blame.
func TestCutBetweenMachines(t *testing.T) {
	const size, victim = 4, 0
	for _, tt := range everyCall {
		t.Run(tt.name, func(t *testing.T) { testCut(t, "machines", size, victim, tt, ": connection lost") })
	}
}

func testCut(t *testing.T, over string, size, victim int, tt call, want string) {
	var r relay
	w := newWorldOn(t, over, size, func(cfg *InitConfig) {
		if cfg.Rank == victim {
			cfg.Store = relayed{Store: cfg.Store, relay: &r}
		}
	})
	r.cutAfter(50_000)
	var errs []error
	testkit.Within(t, testkit.Patience, func() {
		errs = testkit.Each(size, func(rank int) error { return untilBroken(t.Context(), w[rank], tt) })
	})
	for rank, err := range errs {
		if !errors.Is(err, ErrLost) || rank != victim && !strings.Contains(err.Error(), want) {
			t.Errorf("rank %d of which %d is cut off got %v, want %q", rank, victim, err, want)
		}
	}
	closeAll(w)
	r.close()
}

// What a rank and the others write to each other gets lost from some moment on, in the middle of each of everyCall, without a word
// to anybody: the others name it when the time-out is over, and go on without it.
func TestPartitionInTheMiddle(t *testing.T) {
	for _, tt := range everyCall {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel() // it mostly waits
			// On a busy machine a rank that is there may not get on within the time-out, either: then there is more time.
			for timeout := 300 * time.Millisecond; ; timeout *= 4 {
				err := partition(t, tt, timeout)
				if err == nil {
					return
				}
				if 4*timeout > testkit.Patience {
					t.Fatal(err)
				}
				t.Logf("within %v: %v", timeout, err)
			}
		})
	}
}

// partition plays one call of TestPartitionInTheMiddle.
func partition(t *testing.T, tt call, timeout time.Duration) error {
	const size, victim = 4, 2
	var network *transport.Network
	w := formed(t, 20, func() ([]*Comm, error) {
		network = transport.NewNetwork(size)
		return meetIn(t.Context(), network, func(cfg *InitConfig) { cfg.Config.Timeout = timeout })
	})
	time.AfterFunc(3*time.Millisecond, func() {
		for rank := range size {
			if rank != victim {
				network.Cut(rank, victim)
			}
		}
	})
	begin := time.Now()
	errs := testkit.Each(size, func(rank int) error { return untilBroken(t.Context(), w[rank], tt) })
	if took := time.Since(begin); took < timeout {
		t.Errorf("took %v", took)
	}
	want := fmt.Sprintf("rank %d: no progress for %v: it does not answer", victim, timeout)
	named := false
	for rank, err := range errs {
		if !errors.Is(err, ErrTimeout) {
			t.Errorf("rank %d got %v", rank, err)
		}
		named = named || rank != victim && strings.Contains(err.Error(), want)
	}
	if !named {
		return fmt.Errorf("nobody says %q: %v", want, errs)
	}
	for rank, err := range testkit.Each(size, func(rank int) error {
		next, err := w[rank].Shrink(t.Context())
		if err != nil || rank == victim {
			return err
		}
		return goesOn(t.Context(), next, []int{0, 1, 3})
	}) {
		if (err != nil) != (rank == victim) {
			return fmt.Errorf("shrink: rank %d got %v", rank, err)
		}
	}
	return nil
}
