package slurm

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"ddpbatch/internal/testkit"
)

// Signals interrupt bash's wait. The script must then continue to wait, report the signals, and still exit with srun's own code. The first
// warning creates the stop file while srun runs.
func TestScriptSurvivesSignals(t *testing.T) {
	for name, env := range posixModes {
		t.Run(name, func(t *testing.T) { testScriptSurvivesSignals(t, env...) })
	}
	t.Run("after a setup with traps of its own", func(t *testing.T) {
		testScriptSurvivesSignals(t, `SETUP=trap "rm -f $HOME/scratch" EXIT HUP INT QUIT TERM USR1 USR2; touch "$HOME/scratch"`)
	})
	t.Run("after a setup that ignores them", func(t *testing.T) {
		testScriptSurvivesSignals(t, `SETUP=trap "" HUP INT QUIT TERM USR1 USR2; set -o posix`)
	})
}

// isWaiting reports whether a process sleeps and has no pending signal. A signal at the moment when srun ends can make bash 5.2 lose srun's
// exit code.
func isWaiting(t *testing.T, pid int) bool {
	t.Helper()
	for range 3 { // a trap that creates a file may sleep for a moment
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range []string{"\nState:\tS", "\nSigPnd:\t0000000000000000\n", "\nShdPnd:\t0000000000000000\n"} {
			if !strings.Contains(string(status), line) {
				return false
			}
		}
	}
	return true
}

func testScriptSurvivesSignals(t *testing.T, env ...string) {
	s := newScriptRun(t, "run", func(s *Script) { s.Setup.Script = []string{`eval "$SETUP"`} })
	pause := filepath.Join(s.dir, "pause")
	if err := syscall.Mkfifo(pause, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := s.command(append(env, "PAUSE="+pause, "RUN_CODE=5")...)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || line != "started\n" {
		t.Fatalf("srun said %q (%v)", line, err)
	}
	warned := filepath.Join(s.dir, "run", "signal")
	send := func(sig syscall.Signal) {
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatalf("send %v: %v", sig, err)
		}
	}
	for range 10 {
		for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT} {
			send(sig)
		}
	}
	if _, err := os.Stat(warned); err == nil {
		t.Error("there is a file of a warning before it")
	}
	for deadline := time.Now().Add(testkit.Patience); ; {
		send(syscall.SIGUSR2)
		if _, err := os.Stat(warned); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("no file of the warning after it")
		}
	}
	testkit.Eventually(t, "bash has received all signals and waits", func() bool { return isWaiting(t, cmd.Process.Pid) })
	if err := os.WriteFile(pause, []byte("go on\n"), 0o600); err != nil { // blocks until srun reads
		t.Fatal(err)
	}
	_ = cmd.Wait() // the exit code is checked below
	if code := cmd.ProcessState.ExitCode(); code != 5 {
		t.Errorf("exit %v, want srun's code 5; stderr: %s", cmd.ProcessState, stderr.String())
	}
	calls := s.calls(t)
	end := calls[len(calls)-1]
	// bash 5.2 loses some of several signals that arrive together
	passed := strings.Fields(end[6])
	strange := slices.ContainsFunc(passed, func(s string) bool {
		return !slices.Contains([]string{"HUP", "INT", "QUIT", "TERM", "USR2"}, s)
	})
	if end[5] != "--signals" || strange || !slices.Contains(passed, "USR2") {
		t.Errorf("attempt end got the signals %q", end)
	}
	if _, err := os.Stat(filepath.Join(s.dir, "scratch")); err == nil {
		t.Error("the setup's own trap has not cleaned up")
	}
}

// If a warning cannot be written (no space, a read-only file system), the script still reports it at the end.
func TestScriptReportsAWarningWithoutAFile(t *testing.T) {
	for name, env := range posixModes {
		s := newScriptRun(t, "run", nil)
		if err := os.Mkdir(filepath.Join(s.dir, "run", "signal"), 0o700); err != nil { // in place of the file
			t.Fatal(err)
		}
		pause := filepath.Join(s.dir, "pause")
		if err := syscall.Mkfifo(pause, 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := s.command(append(env, "PAUSE="+pause, "RUN_CODE=5")...)
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stderr = cmd.Stdout
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		said := bufio.NewReader(stdout)
		if line, err := said.ReadString('\n'); err != nil || line != "started\n" {
			t.Fatalf("srun said %q (%v)", line, err)
		}
		if err := cmd.Process.Signal(syscall.SIGUSR2); err != nil {
			t.Fatal(err)
		}
		if line, err := said.ReadString('\n'); err != nil || !strings.Contains(line, "signal: ") { // the trap has run
			t.Fatalf("the script said %q (%v)", line, err)
		}
		if err := os.WriteFile(pause, []byte("go on\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // the exit code is checked below
		calls := s.calls(t)
		if end := calls[len(calls)-1]; cmd.ProcessState.ExitCode() != 5 || end[2] != "end" || strings.TrimSpace(end[6]) != "USR2" {
			t.Errorf("%s: exit code %d, attempt end was called as %q", name, cmd.ProcessState.ExitCode(), end)
		}
	}
}

// Slurm signals the script two or three times. A signal that arrives after attempt end has started, and before it can catch it, must not
// end it: no other process decides what happens next.
func TestScriptProtectsItsEnd(t *testing.T) {
	s := newScriptRun(t, "run", nil)
	for _, name := range []string{"TERM", "INT", "HUP", "QUIT", "USR1", "USR2"} {
		if out, code := s.run(t, "RUN_CODE=7", "END_SIGNAL="+name); code != 7 {
			t.Errorf("%s: exit code %d, output %q; want 7", name, code, out)
		}
	}
}

// attempt end receives the names of the signals that Slurm sends when it ends a job.
func TestScriptReportsTERM(t *testing.T) {
	s := newScriptRun(t, "run", nil)
	pause := filepath.Join(s.dir, "pause")
	if err := syscall.Mkfifo(pause, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := s.command("PAUSE=" + pause)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || line != "started\n" {
		t.Fatalf("srun said %q (%v)", line, err)
	}
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGCONT, syscall.SIGTERM} {
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Eventually(t, "bash has received all signals and waits", func() bool { return isWaiting(t, cmd.Process.Pid) })
	if err := os.WriteFile(pause, []byte("go on\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	calls := s.calls(t)
	if end := calls[len(calls)-1]; strings.TrimSpace(end[6]) != "TERM" {
		t.Errorf("attempt end got the signals %q, want TERM", end)
	}
}

// If a signal ends attempt end before it could catch signals, the script calls it again, so that the run does not stay without a decision.
// If a signal ends it later, the script does not call it again.
func TestScriptCallsItsEndAgain(t *testing.T) {
	for env, want := range map[string]int{"DEAF=1": 2, "END_SIGNAL=KILL": 1} {
		s := newScriptRun(t, "run", nil)
		out, code := s.run(t, "RUN_CODE=7", env)
		ends := 0
		for _, call := range s.calls(t) {
			if len(call) > 2 && call[2] == "end" {
				ends++
			}
		}
		if ends != want || (code == 7) != (want == 2) {
			t.Errorf("%s: attempt end was called %d times, want %d; exit code %d, output %q", env, ends, want, code, out)
		}
	}
}
