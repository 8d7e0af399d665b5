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

	"ddpbatch/internal/exit"
	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/testkit"
	"ddpbatch/internal/vfs"
	"ddpbatch/mpi/launch"
)

// If the path of a file to read is a pipe without a writer, or a device, reading it fails at once.
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
					want = "a pipe to which nothing was written"
				}
				if err == nil || isJob != (exitCode(err) == exit.Usage) || !strings.Contains(err.Error(), want) {
					t.Errorf("%s, %s: %v", path, name, err)
				}
			case <-time.After(testkit.Patience):
				t.Fatalf("%s in place of %s is waited for", path, name)
			}
		}
	}
}

// The first Ctrl-C ends the wait for a pipe that its writer never closes, whether it comes before the wait or during it.
func TestInterruptEndsTheWaitForAPipe(t *testing.T) {
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
			text := make([]byte, 1<<19) // more than a pipe holds, so that the reader is reading
			if _, err := w.Write(text); err != nil {
				t.Fatal(err)
			}
			press(launch.SignalError{Sig: syscall.SIGINT})
		}
		select {
		case err := <-done:
			if want := "told to stop by SIGINT while reading " + path; exitCode(err) != exit.Interrupted ||
				!strings.Contains(err.Error(), want) {
				t.Errorf("exit code %d: %v", exitCode(err), err)
			}
		case <-time.After(testkit.Patience):
			t.Fatal("a pipe is waited for after Ctrl-C")
		}
	}
}

// If a command was interrupted, it returns that error, and neither the job nor the template that it has read.
func TestFileReadAfterAnInterruptIsNotAJob(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(path, []byte("name = \"x\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, press := context.WithCancelCause(t.Context())
	press(launch.SignalError{Sig: syscall.SIGINT})
	if text, err := readJob(ctx, path); exitCode(err) != exit.Interrupted {
		t.Errorf("read %q, exit code %d: %v", text, exitCode(err), err)
	}
	if text, err := readTemplate(ctx, &jobfile.Job{ScriptTemplate: path}); exitCode(err) != exit.Interrupted {
		t.Errorf("read the template %q, exit code %d: %v", text, exitCode(err), err)
	}
}
