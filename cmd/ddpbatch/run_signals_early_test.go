package main

import (
	"context"
	"os"
	"syscall"
	"testing"
	"time"

	"ddpbatch/internal/testkit"
)

// TestWarnedEarly: a warning that comes before the agent knows its signals is a warning all the same, and does not end the agent.
func TestWarnedEarly(t *testing.T) {
	if holdSignals([]string{"ddpbatch", "status"}) != nil {
		t.Error("status holds signals, which end it")
	}
	release := holdSignals([]string{"ddpbatch", "run", "--", "true"})
	if err := syscall.Kill(os.Getpid(), syscall.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	_, warned, end := signalPlan{stop: stopSignals, warn: syscall.SIGUSR2}.listen(context.Background(), func(string, ...any) {})
	defer end()
	release()
	select {
	case <-warned:
	case <-time.After(testkit.Patience):
		t.Error("the warning is lost")
	}
}
