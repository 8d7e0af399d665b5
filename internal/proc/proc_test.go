package proc

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// The test binary is also the parent that dies: it starts a child, says its pid, and waits.
func TestMain(m *testing.M) {
	if os.Getenv("PROC_TEST_PARENT") == "1" {
		p, err := Start(exec.Command("sleep", "1000"))
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(p.Pid())
		<-p.Done()
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

func wait(t *testing.T, p *Process) {
	t.Helper()
	select {
	case <-p.Done():
	case <-time.After(20 * time.Second):
		p.Signal(syscall.SIGKILL)
		t.Fatal("the process has not ended within 20 s")
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
	r.SetReadDeadline(time.Now().Add(20 * time.Second))
	if rest, err := io.ReadAll(r); err != nil {
		t.Errorf("the grandchild still holds the pipe (%q): %v", rest, err)
	}
	if err := p.Signal(syscall.SIGTERM); err != nil {
		t.Errorf("a signal to a group that is gone: %v", err)
	}
}

// TestDiesWithItsParent kills the parent outright and looks for the child.
func TestDiesWithItsParent(t *testing.T) {
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), "PROC_TEST_PARENT=1")
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 32)
	n, err := out.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(line[:n])))
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	parent.Wait()
	for end := time.Now().Add(20 * time.Second); alive(pid); {
		if time.Now().After(end) {
			syscall.Kill(pid, syscall.SIGKILL)
			t.Fatalf("process %d outlived its parent by 20 s", pid)
		}
	}
}

// alive tells whether pid runs; a zombie that nobody has reaped yet does not.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z")
}
