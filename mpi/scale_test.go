package mpi

import (
	"context"
	"runtime"
	"testing"
	"time"

	"ddpbatch/internal/testkit"
	"ddpbatch/mpi/transport"
)

// generous is how long a start may take here; docs/benchmarks.md has what it takes on a quiet machine.
const generous = 5 * time.Second

func skipTimed(t *testing.T) {
	t.Helper()
	switch {
	case testing.Short():
		t.Skip("times the start of many ranks: not with -short")
	case raceEnabled:
		t.Skip("times the start of many ranks: not with the race detector, which slows it down")
	}
}

func TestThousandRanks(t *testing.T) {
	skipTimed(t)
	const size = 1000
	begin := time.Now()
	w := newLocal(t, transport.NewNetwork(size), nil)
	took := time.Since(begin)
	t.Logf("%d ranks formed a group in %v, on %d cores", size, took, runtime.NumCPU())
	if took > generous {
		t.Errorf("took %v", took)
	}
	must(t, testkit.Each(size, func(rank int) error {
		x := []int64{1}
		if err := AllReduce(t.Context(), w[rank], x, Sum); err != nil || x[0] != size {
			t.Errorf("rank %d counted %d: %v", rank, x[0], err)
		}
		return nil
	}))
}

// startProcess is a rank that meets the others, and no more.
func startProcess(ctx context.Context, c *Comm) error { return c.Barrier(ctx) }

func TestManyProcesses(t *testing.T) {
	skipTimed(t)
	const size = 64
	begin := time.Now()
	ranks := startRanks(t, "start", "", size, testkit.Patience)
	wait(t, ranks...)
	took := time.Since(begin)
	succeeded(t, ranks)
	t.Logf("%d processes formed a group, and ended, in %v, on %d cores", size, took, runtime.NumCPU())
	if took > 2*generous {
		t.Errorf("took %v", took)
	}
}
