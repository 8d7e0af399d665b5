package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"ddpbatch/internal/testkit"
	"ddpbatch/mpi/launch"
)

func TestSignalsCancelWithTheirName(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		if signal.Ignored(sig) {
			t.Logf("%v is not tried: these tests were started to ignore it (nohup)", sig)
			continue
		}
		ctx, stop := withSignals(context.Background(), io.Discard)
		if err := syscall.Kill(os.Getpid(), sig); err != nil {
			t.Fatal(err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(testkit.Patience):
			t.Fatalf("%v did not cancel", sig)
		}
		var told launch.SignalError
		if !errors.As(context.Cause(ctx), &told) || told.Sig != sig {
			t.Errorf("%v: the cause is %v", sig, context.Cause(ctx))
		}
		stop()
	}
}

func TestSignalsStop(t *testing.T) {
	ctx, stop := withSignals(context.Background(), io.Discard)
	stop()
	if errors.As(context.Cause(ctx), new(launch.SignalError)) || ctx.Err() == nil {
		t.Errorf("stopped without a signal: %v", context.Cause(ctx))
	}
}

// started is a ddpbatch process that runs a worker that neither TERM nor INT ends.
func started(t *testing.T) (cmd *exec.Cmd, stderr func() string) {
	t.Helper()
	cmd = exec.Command("ddpbatch", "run", "--standalone", "--", "sh", "-c", "trap 'echo told' TERM INT; echo ready; while :; do sleep 0.1; done")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	cmd.Stderr = &text
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "ready" {
		t.Fatalf("the worker says %q", lines.Text())
	}
	return cmd, text.String
}

// TestSecondInterrupt: workers may take their time after the first one; the second one means now.
func TestSecondInterrupt(t *testing.T) {
	cmd, stderr := started(t)
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for end := time.After(testkit.Patience); ; {
		cmd.Process.Signal(syscall.SIGINT) // those that come at once count as one
		select {
		case <-ended:
			if code := cmd.ProcessState.ExitCode(); code != exitInterrupted || !strings.Contains(stderr(), "interrupted twice") {
				t.Errorf("exit code %d, %q", code, stderr())
			}
			return
		case <-end:
			t.Fatalf("still there after %v of interrupts", testkit.Patience)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// TestOnePressSentTwice: what comes at once is one wish.
func TestOnePressSentTwice(t *testing.T) {
	start := time.Now()
	var presses keyPresses
	for _, row := range []struct {
		after time.Duration
		want  bool
	}{{0, false}, {0, false}, {time.Millisecond, false}, {200 * time.Millisecond, false}, {300 * time.Millisecond, true}, {time.Hour, true}} {
		if got := presses.again(start.Add(row.after)); got != row.want {
			t.Errorf("an INT %v after the first: %t, want %t", row.after, got, row.want)
		}
	}
}

// TestManyTermsAreOne: Slurm sends TERM two or three times, and that means no more than once.
func TestManyTermsAreOne(t *testing.T) {
	cmd, stderr := started(t)
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for range 5 {
		cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
			t.Fatalf("it left its workers: %s", stderr())
		case <-time.After(50 * time.Millisecond):
		}
	}
}
