package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"ddpbatch/internal/exit"
	"ddpbatch/internal/testkit"
	"ddpbatch/internal/torchrun"
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
		var stopped launch.SignalError
		if !errors.As(context.Cause(ctx), &stopped) || stopped.Sig != sig {
			t.Errorf("%v: the cause is %v", sig, context.Cause(ctx))
		}
		stop()
	}
}

func TestStopIsNotASignal(t *testing.T) {
	ctx, stop := withSignals(context.Background(), io.Discard)
	stop()
	if errors.As(context.Cause(ctx), new(launch.SignalError)) || ctx.Err() == nil {
		t.Errorf("stopped without a signal: %v", context.Cause(ctx))
	}
}

// started returns a ddpbatch process whose worker ignores TERM and INT.
func started(t *testing.T) (cmd *exec.Cmd, stderr func() string) {
	t.Helper()
	cmd = exec.Command("ddpbatch", "run", "--standalone", "--", "sh", "-c",
		"trap 'echo told' TERM INT; echo ready; while :; do sleep 0.1; done")
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

// After the first interrupt, workers may take their time. The second one ends them at once.
func TestSecondInterruptEndsAtOnce(t *testing.T) {
	cmd, stderr := started(t)
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for end := time.After(testkit.Patience); ; {
		cmd.Process.Signal(syscall.SIGINT) // interrupts that arrive together count as one
		select {
		case <-ended:
			if code := cmd.ProcessState.ExitCode(); code != exit.Interrupted || !strings.Contains(stderr(), "interrupted twice") {
				t.Errorf("exit code %d, %q", code, stderr())
			}
			return
		case <-end:
			t.Fatalf("still there after %v of interrupts", testkit.Patience)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Interrupts that arrive together count as one.
func TestOnePressSentTwiceIsOne(t *testing.T) {
	start := time.Now()
	var presses keyPresses
	for _, row := range []struct {
		after time.Duration
		want  bool
	}{{0, false}, {0, false}, {time.Millisecond, false}, {200 * time.Millisecond, false},
		{300 * time.Millisecond, true}, {time.Hour, true}} {
		if got := presses.again(start.Add(row.after)); got != row.want {
			t.Errorf("an INT %v after the first: %t, want %t", row.after, got, row.want)
		}
	}
}

// Slurm sends TERM two or three times. Several count as one.
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

func TestSignalPlanFollowsTheFlags(t *testing.T) {
	const usr1, usr2, term, hup = syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGTERM, syscall.SIGHUP
	for _, row := range []struct {
		flags string
		warn  syscall.Signal
		stop  []syscall.Signal
		warns syscall.Signal
	}{
		{"", usr2, stopSignals, usr2},
		{"", term, []syscall.Signal{syscall.SIGINT, hup, syscall.SIGQUIT}, term}, // the job's warn_signal
		{"--signals-to-handle SIGTERM,usr1", usr2, []syscall.Signal{term, usr1}, usr2},
		{"--signals-to-handle USR2", usr2, []syscall.Signal{usr2}, 0}, // a user who names the signal gets it as a stop signal
	} {
		o, _, err := torchrun.Parse(append(strings.Fields(row.flags), "x"), (&env{}).lookup)
		if err != nil {
			t.Fatal(err)
		}
		want := slices.Clone(row.stop)
		if signal.Ignored(hup) { // if the tests themselves run under nohup
			want = slices.DeleteFunc(want, func(sig syscall.Signal) bool { return sig == hup })
		}
		if p := signalPlanOf(&o, row.warn); !slices.Equal(p.stop, want) || p.warn != row.warns {
			t.Errorf("%q, warned by %v: %v, want %v", row.flags, row.warn, p, want)
		}
	}
}

// TestSignalsStopOrWarnAsPlanned sends this process signals that stop an agent, that warn it, and that have no effect.
func TestSignalsStopOrWarnAsPlanned(t *testing.T) {
	var mu sync.Mutex
	var noted []string
	note := func(format string, _ ...any) {
		mu.Lock()
		defer mu.Unlock()
		noted = append(noted, format)
	}
	// TERM, INT and HUP are in the list, so that listen resets no handler in the process of the tests
	plan := signalPlan{stop: append(slices.Clone(stopSignals), syscall.SIGALRM), warn: syscall.SIGUSR2}
	ctx, warned, end := plan.listen(context.Background(), note)
	defer end()
	kill(t, syscall.SIGUSR2)
	select {
	case <-warned:
	case <-time.After(testkit.Patience):
		t.Fatal("no warning was heard")
	}
	kill(t, syscall.SIGUSR1)
	eventually(t, testkit.Patience, "USR1 is noted", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(noted) == 1 && strings.Contains(noted[0], "USR1 has no effect")
	})
	if ctx.Err() != nil {
		t.Fatalf("stopped by what does not stop: %v", context.Cause(ctx))
	}
	kill(t, syscall.SIGALRM)
	select {
	case <-ctx.Done():
	case <-time.After(testkit.Patience):
		t.Fatal("not stopped")
	}
	var stopped launch.SignalError
	if !errors.As(context.Cause(ctx), &stopped) || stopped.Sig != syscall.SIGALRM {
		t.Errorf("the cause is %v", context.Cause(ctx))
	}
}

// Further warnings add nothing to one that has not been read yet.
func TestManyWarningsAreOne(t *testing.T) {
	_, warned, end := signalPlan{stop: stopSignals, warn: syscall.SIGUSR2}.listen(context.Background(), func(string, ...any) {})
	for range 5 {
		kill(t, syscall.SIGUSR2)
	}
	select {
	case <-warned:
	case <-time.After(testkit.Patience):
		t.Fatal("no warning was heard")
	}
	end()
}

func kill(t *testing.T, sig syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(os.Getpid(), sig); err != nil {
		t.Fatal(err)
	}
}

// runOf starts an agent of one worker that prints ready, and exits with 7 when the returned file exists.
func runOf(t *testing.T, flags ...string) (cmd *exec.Cmd, stderr func() string, done string) {
	t.Helper()
	done = t.TempDir() + "/done"
	words := append([]string{"run", "--standalone"}, flags...)
	cmd = exec.Command("ddpbatch", append(words, "--", "sh", "-c", "echo ready; until test -e "+done+"; do sleep 0.02; done; exit 7")...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	text := new(sharedText)
	cmd.Stderr = text
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "ready" {
		t.Fatalf("the worker says %q; %s", lines.Text(), text)
	}
	return cmd, text.String, done
}

// sharedText holds what a process has written so far.
type sharedText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *sharedText) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *sharedText) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// An agent and its worker survive the signals that would kill a process without a handler for them.
func TestRunSurvivesWarnings(t *testing.T) {
	cmd, stderr, done := runOf(t)
	cmd.Process.Signal(syscall.SIGUSR2)
	cmd.Process.Signal(syscall.SIGUSR1)
	eventually(t, testkit.Patience, "the agent has heard both", func() bool { return strings.Contains(stderr(), "USR1 has no effect") })
	if err := os.WriteFile(done, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 7 {
		t.Errorf("exit code %d, and not the worker's own; %s", code, stderr())
	}
}

// Each of these signals ends the run, with the exit code that names the signal.
func TestRunStopsWithTheSignalsCode(t *testing.T) {
	for _, row := range []struct {
		sig   syscall.Signal
		flags []string
	}{
		{syscall.SIGQUIT, nil},
		{syscall.SIGTERM, nil},
		{syscall.SIGUSR1, []string{"--signals-to-handle", "SIGUSR1,SIGTERM"}},
		{syscall.SIGUSR2, []string{"--signals-to-handle=SIGUSR2"}},
	} {
		cmd, stderr, _ := runOf(t, row.flags...)
		cmd.Process.Signal(row.sig)
		cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code != 128+int(row.sig) {
			t.Errorf("%v: exit code %d; %s", row.sig, code, stderr())
		}
	}
}

// An agent that was started with HUP ignored keeps ignoring it.
func TestRunUnderNohupIgnoresHangUp(t *testing.T) {
	done := t.TempDir() + "/done"
	cmd := exec.Command("sh", "-c", `trap "" HUP; exec ddpbatch run --standalone -- sh -c "echo ready; until test -e `+done+
		`; do sleep 0.02; done; exit 7"`)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	text := new(sharedText)
	cmd.Stderr = text
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "ready" {
		t.Fatalf("the worker says %q; %s", lines.Text(), text)
	}
	cmd.Process.Signal(syscall.SIGHUP)
	cmd.Process.Signal(syscall.SIGUSR1) // the agent receives it after HUP
	eventually(t, testkit.Patience, "the agent has lived through it",
		func() bool { return strings.Contains(text.String(), "USR1 has no effect") })
	if err := os.WriteFile(done, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 7 {
		t.Errorf("exit code %d; %s", code, text)
	}
}

// A warning that arrives before the agent knows its signals is not lost, even if main took it for a stop signal.
func TestEarlyWarningIsNotLost(t *testing.T) {
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

func TestEarlySignalOfMainIsNotLost(t *testing.T) {
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
