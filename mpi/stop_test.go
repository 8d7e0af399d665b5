package mpi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"ddpbatch/internal/testkit"
)

// stopped is the rank that is.
const stopped = 1

// stopProcess is a rank of a world of three of which one is stopped in the middle of all that ranks can do together, each call in
// a group of its own. When that goes on, later, the others have gone on without it.
func stopProcess(ctx context.Context, c *Comm) error {
	groups := []*Comm{c}
	for len(groups) < len(everyCall) {
		g, err := c.Dup(ctx)
		if err != nil {
			return err
		}
		groups = append(groups, g)
	}
	if err := c.Barrier(ctx); err != nil {
		return err
	}
	if c.Rank() == stopped {
		time.AfterFunc(10*time.Millisecond, func() { syscall.Kill(os.Getpid(), syscall.SIGSTOP) })
	}
	errs := testkit.Each(len(groups), func(i int) error { return untilBroken(ctx, groups[i], everyCall[i]) })
	if c.Rank() == stopped {
		fmt.Println("stopped rank:", errors.Join(errs...))
		return nil
	}
	want := fmt.Sprintf("rank %d: no progress for %v: it does not answer: it is stopped", stopped, c.core.world.config.Timeout)
	for i, err := range errs {
		// Of the messages in a ring, one rank may find the other, which waits for the one that is stopped.
		named := strings.Contains(err.Error(), want) || everyCall[i].name == "messages" && c.Rank() != stopped+1
		if !errors.Is(err, ErrTimeout) || !named {
			return fmt.Errorf("%s: want %q: %w", everyCall[i].name, want, err)
		}
	}
	next, err := c.Shrink(ctx)
	if err != nil {
		return err
	}
	return goesOn(ctx, next, []int{0, 2})
}

// A process that is stopped is named after the time-out, and can be left behind.
func TestProcessStops(t *testing.T) {
	for _, over := range realTransports {
		t.Run(over, func(t *testing.T) {
			t.Parallel() // it mostly waits
			// The processes must also start and meet within the time-out, and answer each other. Where a busy machine is slower, they get more time.
			timeout := 2 * time.Second
			ranks, took := playStop(t, over, timeout)
			for ; (ranks[0].err != nil || ranks[2].err != nil) && 4*timeout < testkit.Patience; ranks, took = playStop(t, over, timeout) {
				t.Logf("within %v: %q, %q", timeout, ranks[0].errOut.String(), ranks[2].errOut.String())
				timeout *= 4
			}
			succeeded(t, ranks)
			if took < timeout || took > 2*testkit.Patience {
				t.Errorf("took %v", took)
			}
			if err := ranks[stopped].cmd.Process.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			wait(t, ranks[stopped])
			if text := ranks[stopped].out.String(); ranks[stopped].err != nil || !strings.Contains(text, "rank ") {
				t.Errorf("the rank that was stopped: %v; printed %q", ranks[stopped].err, text)
			}
		})
	}
}

// playStop starts the processes, and returns when those have ended that are not stopped.
func playStop(t *testing.T, over string, timeout time.Duration) (ranks []*rankProcess, took time.Duration) {
	t.Helper()
	ranks = startRanks(t, "stop", over, 3, timeout)
	begin := time.Now()
	wait(t, ranks[0], ranks[2])
	return ranks, time.Since(begin)
}
