package mpi

import (
	"context"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ddpbatch/internal/testkit"
	"ddpbatch/mpi/transport"
)

// generous is how long a start may take here; docs/benchmarks.md has what it takes on a quiet machine.
const generous = 5 * time.Second

// cpuTime is what this process has used so far.
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

func TestThousandRanks(t *testing.T) { // without the race detector
	skipTimed(t)
	const size = 1000
	var w []*Comm
	// Of the processor, not of the clock: for as long as they have, the ranks wait for each other alone, and all are in this process.
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

// startProcess is a rank that meets the others, and no more.
func startProcess(ctx context.Context, c *Comm) error { return c.Barrier(ctx) }

func TestManyProcesses(t *testing.T) { // without the race detector
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
