package main

import (
	"context"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/testkit"
	"ddpbatch/scripts/bench/internal/command"
	"ddpbatch/scripts/bench/internal/paired"
)

// The parts about agents produce all their figures on a small cluster, and leave no worker.
func TestAgentsAreMeasuredAndLeaveNoWorker(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it starts jobs")
	}
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // it takes a few seconds
	defer cancel()
	o := options{parts: knownParts, Common: command.Common{Launches: 2}, rendezvous: shape{3, 2}, idle: time.Second}
	figures, err := paired.MeasureFigures(ctx, cluster{program, dir}.experiments(o), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if len(figures) != 9 {
		t.Errorf("%d figures", len(figures))
	}
	for _, f := range figures {
		if f.Unit != "%" && f.Samples.Median() <= 0 || f.Samples.Median() > 120_000 {
			t.Errorf("%s: %v %s", f.What, f.Samples, f.Unit)
		}
	}
	if jobs, err := filepath.Glob(filepath.Join(dir, "job-*")); len(jobs) > 0 || err != nil {
		t.Errorf("left: %q, %v", jobs, err)
	}
}

// awaitEnd waits for workers that do not end no longer than the limit or the context permits, and for workers that end no longer than they
// live.
func TestAwaitEndStopsAtItsLimit(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	lives, err := watch([]simulatedWorker{{pid: cmd.Process.Pid}})
	defer lives.close()
	if err != nil {
		t.Fatal(err)
	}
	testkit.Within(t, testkit.Patience, func() {
		for _, limit := range []time.Duration{-time.Millisecond, 0, 5 * time.Millisecond} {
			if err := lives.awaitEnd(t.Context(), limit); err == nil || !strings.Contains(err.Error(), "after one was killed") {
				t.Errorf("a limit of %v: %v", limit, err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(5*time.Millisecond, cancel)
		if err := lives.awaitEnd(ctx, testkit.Patience); !errors.Is(err, context.Canceled) {
			t.Errorf("interrupted: %v", err)
		}
		time.AfterFunc(5*time.Millisecond, func() { cmd.Process.Kill() })
		if err := lives.awaitEnd(t.Context(), testkit.Patience); err != nil {
			t.Errorf("once it has ended: %v", err)
		}
	})
}
