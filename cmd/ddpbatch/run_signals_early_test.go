package main

import (
	"context"
	"os"
	"syscall"
	"testing"
	"time"

	"ddpbatch/internal/testkit"
	"ddpbatch/mpi/launch"
)

// TestWarnedEarly: a warning that comes before the agent knows its signals is a warning all the same, also one that main took for an order to stop.
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

func TestWarnedEarlyBySignalOfMain(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		parent, stop := context.WithCancelCause(t.Context())
		stop(launch.SignalError{Sig: sig})
		plan := signalPlan{stop: []syscall.Signal{syscall.SIGINT}, warn: syscall.SIGTERM}
		ctx, warned, end := plan.listen(parent, func(string, ...any) {})
		defer end()
		select {
		case <-warned:
			if sig != plan.warn || ctx.Err() != nil {
				t.Errorf("%v is a warning; the context ends with %v", sig, context.Cause(ctx))
			}
		case <-ctx.Done():
			if sig == plan.warn || context.Cause(ctx) != error(launch.SignalError{Sig: sig}) {
				t.Errorf("%v ends the run: %v", sig, context.Cause(ctx))
			}
		case <-time.After(testkit.Patience):
			t.Errorf("%v is lost", sig)
		}
	}
}
