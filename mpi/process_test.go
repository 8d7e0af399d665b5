package mpi

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"ddpbatch/internal/testkit"
)

// rankProcess is a rank in a process of its own, and what it printed.
type rankProcess struct {
	cmd         *exec.Cmd
	out, errOut bytes.Buffer
	err         error // of its end
}

// startRanks starts the processes of a scenario.
func startRanks(t *testing.T, scenario, over string, size int, timeout time.Duration) []*rankProcess {
	t.Helper()
	port := freePort(t, "127.0.0.1")
	ranks := make([]*rankProcess, size)
	for rank := range ranks {
		p := &rankProcess{cmd: exec.Command(os.Args[0])}
		p.cmd.Env = append(os.Environ(), scenarioVariable+"="+scenario, transportVariable+"="+over, timeoutVariable+"="+timeout.String(),
			"RANK="+strconv.Itoa(rank), "WORLD_SIZE="+strconv.Itoa(size), "MASTER_ADDR=127.0.0.1", "MASTER_PORT="+port,
			"DDPBATCH_SECRET="+secretHex)
		p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.errOut
		if err := p.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.cmd.Process.Kill() })
		ranks[rank] = p
	}
	return ranks
}

// wait returns when the given processes have ended.
func wait(t *testing.T, ranks ...*rankProcess) {
	t.Helper()
	testkit.Within(t, 4*testkit.Patience, func() {
		testkit.Each(len(ranks), func(i int) error {
			ranks[i].err = ranks[i].cmd.Wait()
			return nil
		})
	})
}

// succeeded fails the test if a process has ended with an error.
func succeeded(t *testing.T, ranks []*rankProcess) {
	t.Helper()
	for rank, p := range ranks {
		if p.err != nil {
			t.Errorf("rank %d: %v; printed %q, %q", rank, p.err, p.out.String(), p.errOut.String())
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}

// realTransports are those that processes of their own can use.
var realTransports = []string{"tcp", "shm"}

// conformProcess is a rank of TestConformance and TestDeterminism in its own process.
func conformProcess(ctx context.Context, c *Comm) error {
	seed := []uint64{rand.Uint64()}
	if err := Broadcast(ctx, c, seed, 0); err != nil {
		return err
	}
	c.core.world.config.Deterministic = false
	if err := conform(ctx, c, seed[0], 2); err != nil {
		return fmt.Errorf("seed %d: %w", seed[0], err)
	}
	c.core.world.config.Deterministic = true
	if err := determined(ctx, c, kindFloat32, seed[0]); err != nil {
		return fmt.Errorf("seed %d: %w", seed[0], err)
	}
	return nil
}

func TestProcesses(t *testing.T) {
	for _, over := range realTransports {
		for _, scenario := range []string{"conform", "handmade"} {
			for _, size := range sampleOf(over, []int{2, 3, 4, 5, 8}) {
				t.Run(over+"/"+scenario+"/"+rankName(size), func(t *testing.T) {
					ranks := startRanks(t, scenario, over, size, testkit.Patience)
					wait(t, ranks...)
					succeeded(t, ranks)
				})
			}
		}
	}
}
