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

func TestCode(t *testing.T) {
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

func TestNotStarted(t *testing.T) {
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

// TestGroupEndsWithItsLeader holds that a child left behind does not keep the output open.
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
	// the grandchild holds the pipe: its end shows when it is gone
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

// TestSignalDoesNotWaitForOutput holds that an output that stays open, because somebody outside the group
// has it, keeps nobody from asking for a signal.
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
		for alive(p.Pid()) { // until it is a zombie, whose output nobody takes
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

// alive tells whether pid runs; a zombie does not.
func alive(pid int) bool {
	s, err := readStat(pid)
	return err == nil && !s.zombie()
}
