package launch

import (
	"context"
	"fmt"
	"syscall"
	"testing"
)

func TestSignalIsPassedOn(t *testing.T) {
	for _, tc := range []struct {
		sig    syscall.Signal
		code   string // what the workers exit with
		exit   int
		worker string // what the workers saw
	}{
		{syscall.SIGTERM, "3", 143, "terminated\n"},
		{syscall.SIGINT, "0", 130, "interrupt\n"},
		{syscall.SIGUSR2, "5", 140, "user defined signal 2\n"},
	} {
		t.Run(fmt.Sprint(tc.sig, " ", tc.code), func(t *testing.T) {
			w := newWorld(t, []int{1, 2}, "wait", tc.code)
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			go func() {
				w.awaitMarks("0", "1", "2")
				cancel(SignalError{Sig: tc.sig})
			}()
			v := w.agree(w.runUntil(ctx))
			if v.Cause != "cancelled" || v.Exit != tc.exit || v.Signal != int(tc.sig) || v.FirstRank != -1 || v.Requeue {
				t.Errorf("verdict is %+v", v)
			}
			for rank, host := range []string{"n1", "n2", "n2"} {
				if got := w.logOf(host, rank, "out"); got != tc.worker {
					t.Errorf("rank %d saw %q, want %q: the signal, once", rank, got, tc.worker)
				}
			}
		})
	}
}

// The exit codes of workers that a signal stopped show whether they saved.
func TestExitCodesSayWhetherWorkersSaved(t *testing.T) {
	for name, tc := range map[string]struct {
		codes []string
		exit  int
		saved bool
	}{
		"all saved":                  {[]string{"75", "75", "75"}, 75, true},
		"some saved, some had ended": {[]string{"0", "75", "0"}, 75, true},
		"none saved":                 {[]string{"143", "1", "0"}, 143, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, []int{1, 2}, append([]string{"mixed"}, tc.codes...)...)
			w.elastic(0, 3) // a run that a signal stops does not restart
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			go func() {
				w.awaitMarks("0", "1", "2")
				cancel(SignalError{Sig: syscall.SIGTERM})
			}()
			v := w.agree(w.runUntil(ctx))
			cause := "cancelled"
			if tc.exit == 0 {
				cause = "done"
			}
			if v.Cause != cause || v.Exit != tc.exit || v.Saved != tc.saved || v.Requeue != (tc.exit == 75) || v.Round != 0 {
				t.Errorf("verdict is %+v", v)
			}
		})
	}
}

// If one agent gets a signal, as from scancel of a task, all agents stop.
func TestSignalToOneAgentStopsAll(t *testing.T) {
	w := newWorld(t, []int{1, 1}, "wait", "3")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	go func() {
		w.awaitMarks("0", "1")
		cancel(SignalError{Sig: syscall.SIGTERM})
	}()
	results := make(chan result)
	go func() {
		v, err := Run(ctx, w.agents[1])
		results <- result{v, err, 0}
	}()
	v, err := Run(t.Context(), w.agents[0])
	if v := w.agree([]result{{v, err, 0}, <-results}); v.Cause != "cancelled" || v.Host != "n2" {
		t.Errorf("verdict is %+v", v)
	}
}

func TestDeadlineOfTheCallerIsATimeout(t *testing.T) {
	w := newWorld(t, []int{2}, "wait", "0")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	go func() {
		w.awaitMarks("0", "1")
		cancel(context.DeadlineExceeded)
	}()
	if v := w.agree(w.runUntil(ctx)); v.Cause != "timeout" || v.Exit != 124 {
		t.Errorf("verdict is %+v", v)
	}
}

func TestSignalBeforeAllMetCancelsTheRun(t *testing.T) {
	for index := range 2 {
		w := newWorld(t, []int{1, 1}, "say", "x")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(SignalError{Sig: syscall.SIGTERM})
		v, err := Run(ctx, w.agents[index])
		if err == nil || v.Cause != "cancelled" || v.Exit != 143 || v.Signal != 15 {
			t.Errorf("agent %d ended with %+v, %v", index, v, err)
		}
	}
}
