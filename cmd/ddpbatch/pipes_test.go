package main

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"ddpbatch/internal/testkit"
	"ddpbatch/internal/vfs"
)

// TestPipesAreNotWaitedFor: what has the name of a file that is read, and is a pipe without a writer, or a device, is an error at once.
func TestPipesAreNotWaitedFor(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, open := range map[string]func(string) error{
		"a job file": func(path string) error {
			_, err := readJob(t.Context(), path)
			return err
		},
	} {
		for _, path := range []string{pipe, "/dev/zero"} {
			done := make(chan error, 1)
			go func() { done <- open(path) }()
			select {
			case err := <-done:
				isJob := name == "a job file"
				want := vfs.ErrNotRegular.Error()
				if isJob && path == pipe {
					want = "nobody has written to it"
				}
				if err == nil || isJob != (exitCode(err) == exitUsage) || !strings.Contains(err.Error(), want) {
					t.Errorf("%s, %s: %v", path, name, err)
				}
			case <-time.After(testkit.Patience):
				t.Fatalf("%s in place of %s is waited for", path, name)
			}
		}
	}
}
