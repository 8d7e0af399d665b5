package proc

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"ddpbatch/internal/testkit"
)

func wait(t *testing.T, p *Process) {
	t.Helper()
	select {
	case <-p.Done():
	case <-time.After(testkit.Patience):
		p.Signal(syscall.SIGKILL)
		t.Fatal("the process has not ended within", testkit.Patience)
	}
}

func TestCodeIsThatOfAShell(t *testing.T) {
	for script, want := range map[string]struct {
		code int
		sig  syscall.Signal
	}{
		"exit 0":        {0, 0},
		"exit 7":        {7, 0},
		"kill -TERM $$": {143, syscall.SIGTERM},
		"kill -KILL $$": {137, syscall.SIGKILL},
	} {
		p, err := Start(exec.Command("sh", "-c", script))
		if err != nil {
			t.Fatal(err)
		}
		wait(t, p)
		if _, sig := p.End(); p.Code() != want.code || sig != want.sig || p.Err() != nil {
			t.Errorf("%s: code %d, signal %v, error %v; want %d, %v", script, p.Code(), sig, p.Err(), want.code, want.sig)
		}
	}
}

func TestStartReportsAMissingProgram(t *testing.T) {
	if _, err := Start(exec.Command("/nonexistent/program")); err == nil {
		t.Error("a program that is not there was started")
	}
}

func TestOutputIsWholeAtDone(t *testing.T) {
	var out bytes.Buffer
	cmd := exec.Command("sh", "-c", "echo one; echo two >&2")
	cmd.Stdout, cmd.Stderr = &out, &out
	p, err := Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	wait(t, p)
	if got := out.String(); got != "one\ntwo\n" {
		t.Errorf("output %q", got)
	}
}

// TestGroupEndsWithItsLeader: a child that is left behind does not keep the output open.
func TestGroupEndsWithItsLeader(t *testing.T) {
	var out bytes.Buffer
	cmd := exec.Command("sh", "-c", "sleep 1000 & exit 3")
	cmd.Stdout = &out
	p, err := Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	wait(t, p)
	if p.Code() != 3 {
		t.Errorf("code %d, want 3", p.Code())
	}
}

func TestSignalReachesTheGroup(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	// the grandchild holds the pipe, so that the pipe's end shows when it is gone
	cmd := exec.Command("sh", "-c", "sleep 1000 & echo ready; wait")
	cmd.Stdout = w
	p, err := Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	line := make([]byte, 6)
	if _, err := io.ReadFull(r, line); err != nil {
		t.Fatal(err)
	}
	if err := p.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	wait(t, p)
	r.SetReadDeadline(time.Now().Add(testkit.Patience))
	if rest, err := io.ReadAll(r); err != nil {
		t.Errorf("the grandchild still holds the pipe (%q): %v", rest, err)
	}
	if err := p.Signal(syscall.SIGTERM); err != nil {
		t.Errorf("a signal to a group that is gone: %v", err)
	}
}

// TestSignalDoesNotWaitForOutput: if a process outside the group keeps the output open, Signal still returns.
func TestSignalDoesNotWaitForOutput(t *testing.T) {
	reading := make(chan struct{})
	cmd := exec.Command("echo", "word")
	cmd.Stdout = blockedWriter{reading}
	p, err := Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	signalled := make(chan error)
	go func() {
		for alive(p.Pid()) { // until it is a zombie whose output is not read
			runtime.Gosched()
		}
		signalled <- p.Signal(syscall.SIGTERM)
	}()
	select {
	case err := <-signalled:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(testkit.Patience):
		t.Error("Signal waits for the output of a child that has ended")
	}
	close(reading)
	wait(t, p)
}

type blockedWriter struct{ until chan struct{} }

func (w blockedWriter) Write(p []byte) (int, error) {
	<-w.until
	return len(p), nil
}

// alive reports whether pid is a process that still runs. A zombie does not.
func alive(pid int) bool {
	s, err := readStat(pid)
	return err == nil && !s.zombie()
}

func TestHandlesSeesTrappedSignals(t *testing.T) {
	cookie := newCookie(t)
	_, lines := startTest(t, shell(cookie, `trap : USR2; trap '' USR1; echo trapped $$; while :; do sleep 1000; done`), Start)
	trapped := pidAfter(t, lines, "trapped")
	for _, test := range []struct {
		what string
		pid  int
		sig  syscall.Signal
		want bool
	}{
		{"a trap", trapped, syscall.SIGUSR2, true},
		{"ignored", trapped, syscall.SIGUSR1, false},
		{"the default", trapped, syscall.SIGTERM, false},
		{"Go's own", os.Getpid(), syscall.SIGUSR2, true},
		{"of no handler", os.Getpid(), syscall.SIGKILL, false},
		{"no signal", os.Getpid(), 0, false},
		{"no signal", os.Getpid(), -3, false},
		{"no signal", os.Getpid(), 65, false},
	} {
		if got, err := Handles(test.pid, test.sig); err != nil || got != test.want {
			t.Errorf("%s: %v, %v; want %v", test.what, got, err, test.want)
		}
	}
	if _, err := Handles(1<<22+1, syscall.SIGUSR2); err == nil {
		t.Error("a process that cannot be has handlers")
	}
}

func TestCaughtSignals(t *testing.T) {
	if got, err := caughtSignals([]byte("Name:\tSigCgt: ff\nSigIgn:\t01\nSigCgt:\t0000000000000802\n")); err != nil || got != 0x802 {
		t.Errorf("%x, %v", got, err)
	}
	for _, bad := range []string{"", "SigCgt", "SigCgt:\n", "SigCgt:\txyz\n", "SigCgt:\t10000000000000000\n", "SigIgn:\t1\n"} {
		if got, err := caughtSignals([]byte(bad)); err == nil {
			t.Errorf("%q was read as %x", bad, got)
		}
	}
}

// The program behind a shell is warned, and its helper is not. If the shell has a handler, only the shell is warned.
func TestWarnReachesTheProgramBehindAShell(t *testing.T) {
	const program = `trap 'echo told 0' USR2; sleep 1000 & echo program $$; while :; do wait; done`
	for name, test := range map[string]struct {
		script string
		sent   int
	}{
		"itself": {program, 1},
		"behind": {`sh -c "$1" & wait; exit`, 1},
		"outer": {`trap 'echo told 0' USR2; sh -c "trap 'echo inner 0' USR2; while :; do sleep 0.01; done" & echo program $$; ` +
			`while :; do wait; done`, 1},
		"nobody":  {`sleep 1000 & echo program $$; wait`, 0},
		"several": {`sh -c "$1" & sh -c "$1" & sh -c "$1" & echo program $$; wait`, 3},
	} {
		t.Run(name, func(t *testing.T) {
			p, lines := startTest(t, shell(newCookie(t), test.script, program), Start)
			for range max(1, test.sent) {
				pidAfter(t, lines, "program")
			}
			if name != "outer" { // the inner shell may have none yet; a forked child has the shell's handlers until it runs
				testkit.Eventually(t, "all have handlers, and nobody else", func() bool { return handlers(p.Pid()) == test.sent })
			}
			sent, err := p.Warn(syscall.SIGUSR2)
			if err != nil || sent != test.sent {
				t.Errorf("sent to %d, %v; want %d", sent, err, test.sent)
			}
			for range sent {
				pidAfter(t, lines, "told")
			}
			if !alive(p.Pid()) {
				t.Error("the warning killed the child")
			}
		})
	}
	p, err := Start(exec.Command("true"))
	if err != nil {
		t.Fatal(err)
	}
	wait(t, p)
	if sent, err := p.Warn(syscall.SIGUSR2); sent != 0 || err != nil {
		t.Errorf("one that has ended: %d, %v", sent, err)
	}
}

// handlers counts the processes of a group that have a handler for USR2.
func handlers(group int) (n int) {
	all, _ := stats()
	for _, s := range all {
		if has, _ := Handles(s.pid, syscall.SIGUSR2); s.group == group && has {
			n++
		}
	}
	return n
}
