package main

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"ddpbatch/internal/testkit"
	"ddpbatch/mpi/launch"
)

// TestReadTextInterrupted: the first Ctrl-C ends the wait for a pipe that its writer never closes, before it begins and in the middle of it.
func TestReadTextInterrupted(t *testing.T) {
	for _, early := range []bool{true, false} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		defer w.Close()
		path := "/proc/self/fd/" + strconv.Itoa(int(r.Fd()))
		ctx, press := context.WithCancelCause(t.Context())
		defer press(nil)
		if early {
			press(launch.SignalError{Sig: syscall.SIGINT})
		}
		done := make(chan error, 1)
		go func() {
			_, err := readJob(ctx, path)
			done <- err
		}()
		if !early {
			text := make([]byte, 1<<19) // more than a pipe holds: it is being read
			if _, err := w.Write(text); err != nil {
				t.Fatal(err)
			}
			press(launch.SignalError{Sig: syscall.SIGINT})
		}
		select {
		case err := <-done:
			if want := "told to stop by SIGINT while " + path + " was read"; exitCode(err) != exitInterrupted || !strings.Contains(err.Error(), want) {
				t.Errorf("exit code %d: %v", exitCode(err), err)
			}
		case <-time.After(testkit.Patience):
			t.Fatal("a pipe is waited for after Ctrl-C")
		}
	}
}

// TestReadTextAfterInterrupt: a plain file that was read while the command was told to stop is no job, nor an empty one.
func TestReadTextAfterInterrupt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(path, []byte("name = \"x\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, press := context.WithCancelCause(t.Context())
	press(launch.SignalError{Sig: syscall.SIGINT})
	if text, err := readJob(ctx, path); exitCode(err) != exitInterrupted {
		t.Errorf("read %q, exit code %d: %v", text, exitCode(err), err)
	}
	if text, err := readTemplate(ctx, osEnv(), path); exitCode(err) != exitInterrupted {
		t.Errorf("read the template %q, exit code %d: %v", text, exitCode(err), err)
	}
}
