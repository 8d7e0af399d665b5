package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ddpbatch/internal/testkit"
)

// pretendPython puts a python3 first in PATH. Its PyTorch never answers: when it starts, it only writes the file started.
func pretendPython(t *testing.T) (started string) {
	t.Helper()
	dir := t.TempDir()
	started = filepath.Join(dir, "started")
	text := "#!/bin/sh\ncase $2 in 'import torch;'*) echo PyTorch 0; exit 0;; esac\nsleep 1000 & echo $! >'" + started + "'; wait\n"
	if err := os.WriteFile(filepath.Join(dir, "python3"), []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return started
}

// An interrupt ends the start of PyTorch at once, without waiting for an answer, and returns the interrupt and not PyTorch's exit.
func TestTorchIsInterrupted(t *testing.T) {
	started := pretendPython(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := startTorch(ctx, "python3", "state", 1)
		done <- err
	}()
	testkit.Eventually(t, "it has started", func() bool {
		text, err := os.ReadFile(started)
		return err == nil && len(text) > 0
	})
	cancel()
	testkit.Within(t, testkit.Patience, func() {
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("interrupted: %v", err)
		}
	})
}

func TestTorchThatEndsSaysWhy(t *testing.T) {
	_, err := startTorch(t.Context(), "/bin/sh", "state", 1) // its -c does not understand Python
	if err == nil || !strings.HasPrefix(err.Error(), "start PyTorch: it ended: ") || strings.HasSuffix(err.Error(), ": ") {
		t.Errorf("%v", err)
	}
}
