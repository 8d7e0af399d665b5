package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"ddpbatch/internal/testkit"
)

// TestAwaitWarning: each way of asking a rank to stop is heard, and nothing else is taken for one.
func TestAwaitWarning(t *testing.T) {
	for name, tt := range map[string]struct {
		ask  func(t *testing.T, cancel func(), signals chan os.Signal, file string, over chan struct{})
		want bool
	}{
		"a signal that ends":   {func(_ *testing.T, cancel func(), _ chan os.Signal, _ string, _ chan struct{}) { cancel() }, true},
		"the warning's signal": {func(_ *testing.T, _ func(), s chan os.Signal, _ string, _ chan struct{}) { s <- syscall.SIGUSR2 }, true},
		"training is over":     {func(_ *testing.T, _ func(), _ chan os.Signal, _ string, over chan struct{}) { close(over) }, false},
		"the stop file is made": {func(t *testing.T, _ func(), _ chan os.Signal, file string, _ chan struct{}) {
			if err := os.WriteFile(file, nil, 0o600); err != nil {
				t.Error(err)
			}
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			signals, over := make(chan os.Signal, 1), make(chan struct{})
			file := filepath.Join(t.TempDir(), "stop")
			answer := make(chan bool, 1)
			go func() { answer <- awaitWarning(ctx, signals, file, over) }()
			select {
			case <-answer:
				t.Fatal("it answers before anybody has asked")
			case <-time.After(20 * time.Millisecond):
			}
			tt.ask(t, cancel, signals, file, over)
			select {
			case got := <-answer:
				if got != tt.want {
					t.Errorf("asked: %v, want %v", got, tt.want)
				}
			case <-time.After(testkit.Patience):
				t.Error("it does not answer")
			}
		})
	}
}

// A run whose time is over stops after a step, saved, with the code that asks for another attempt; and that ends it.
func TestTrainStopsBeforeTheDeadline(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "long.toml"), []byte(stoppableJob), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd, out := command(dir, "train", "long.toml", "--set", "train.epochs=1")
	cmd.Env = append(os.Environ(), "DDPBATCH_DEADLINE=1")
	if err := cmd.Run(); cmd.ProcessState.ExitCode() != exitRequeue {
		t.Fatalf("%v, want exit code %d\n%s", err, exitRequeue, out)
	}
	run := runMade(t, dir)
	if s := finalState(t, run); s.Step != 1 {
		t.Errorf("the newest checkpoint is of step %d, want 1", s.Step)
	}
	if v, err := run.Verdict(1); err != nil || v.Cause != "stopped" || v.Exit != exitRequeue || !strings.Contains(v.Message, "deadline") {
		t.Errorf("verdict %+v, %v", v, err)
	}
	late, out := command(dir, "resume", run.Path())
	late.Env = append(os.Environ(), "DDPBATCH_DEADLINE=1")
	if err := late.Run(); late.ProcessState.ExitCode() != exitRequeue {
		t.Fatalf("resume: %v, want exit code %d\n%s", err, exitRequeue, out)
	}
	if s := finalState(t, run); s.Step != 2 {
		t.Errorf("the newest checkpoint is of step %d, want 2", s.Step)
	}
	again, out := command(dir, "resume", run.Path())
	if err := again.Run(); err != nil {
		t.Fatalf("resume: %v\n%s", err, out)
	}
	if s := finalState(t, run); s.Step != 125 {
		t.Errorf("the last step is %d, want 125", s.Step)
	}
}
