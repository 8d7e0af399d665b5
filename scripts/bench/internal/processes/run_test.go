package processes

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"ddpbatch/internal/testkit"
)

func TestRun(t *testing.T) {
	t.Setenv("OMP_NUM_THREADS", "8")
	said, took, err := Run(t.Context(), exec.Command("/bin/sh", "-c", "echo a; echo b$OMP_NUM_THREADS >&2; sleep 0.05"))
	if err != nil || said != "a\nb\n" || took < 50*time.Millisecond {
		t.Errorf("%q, %v, %v", said, took, err)
	}
	_, _, err = Run(t.Context(), exec.Command("/bin/sh", "-c", "echo first; echo the reason >&2; exit 3"))
	if err == nil || err.Error() != "exit code 3: the reason" {
		t.Errorf("a command that fails: %v", err)
	}
	if _, _, err := Run(t.Context(), exec.Command("/nonexistent/zstd")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("one that cannot be started: %v", err)
	}
}

// An interrupt ends a command with all that it has started, at once, and is told from a failure.
func TestRunIsInterrupted(t *testing.T) {
	file := filepath.Join(t.TempDir(), "started")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, _, err := Run(ctx, exec.Command("/bin/sh", "-c", `sleep 1000 & echo $! >"$1"; wait`, "sh", file))
		done <- err
	}()
	testkit.Eventually(t, "it has started something", func() bool {
		text, err := os.ReadFile(file)
		return err == nil && len(text) > 0
	})
	cancel()
	testkit.Within(t, testkit.Patience, func() {
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("interrupted: %v", err)
		}
	})
}
