package testkit_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"ddpbatch/internal/testkit"
)

// If this variable is set, the tests below also act as victims.
const isVictim = "DDPBATCH_TEST_TESTKIT_VICTIM"

// TestKillEndsAVictimThatHangs: Kill waits for a victim that stops saving only as long as the context allows, and returns its last step.
func TestKillEndsAVictimThatHangs(t *testing.T) {
	if os.Getenv(isVictim) != "" {
		testkit.Saved(7)
		time.Sleep(time.Minute)
	}
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	start := time.Now()
	last, err := testkit.Kill(ctx, "TestKillEndsAVictimThatHangs", []string{isVictim + "=1"}, 2, 0)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "of 2 saves") {
		t.Errorf("step %d, %v; want that it hangs after 1 of 2 saves", last, err)
	}
	if took := time.Since(start); took > testkit.Patience {
		t.Errorf("it took %v", took)
	}
}

// TestKillReportsAVictimThatEnds: if a victim ends before it is killed, Kill returns what it printed and its last step.
func TestKillReportsAVictimThatEnds(t *testing.T) {
	if os.Getenv(isVictim) != "" {
		testkit.Saved(7)
		t.Fatal("no disk")
	}
	t.Parallel()
	last, err := testkit.Kill(t.Context(), "TestKillReportsAVictimThatEnds", []string{isVictim + "=1"}, 2, 0)
	if last != 7 || err == nil || !strings.HasPrefix(err.Error(), "the victim ended: ") || !strings.Contains(err.Error(), "no disk") {
		t.Errorf("step %d, %v; want step 7, and why it ended", last, err)
	}
}

// TestKillReportsAVictimThatOthersKill: a victim that another process kills, or the kernel because memory ran out, prints nothing. Kill
// still reports it.
func TestKillReportsAVictimThatOthersKill(t *testing.T) {
	if os.Getenv(isVictim) != "" {
		testkit.Saved(7)
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	t.Parallel()
	last, err := testkit.Kill(t.Context(), "TestKillReportsAVictimThatOthersKill", []string{isVictim + "=1"}, 2, 0)
	if last != 7 || err == nil || err.Error() != "the victim ended after 1 of 2 saves: signal: killed" {
		t.Errorf("step %d, %v; want step 7, and that it ended after 1 of 2 saves", last, err)
	}
}
