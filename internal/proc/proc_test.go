package proc

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// The test binary is also the parent that dies: it starts a shell with a child of its own, which
// says the pids of both, and waits.
func TestMain(m *testing.M) {
	if os.Getenv("PROC_TEST_PARENT") == "1" {
		cmd := exec.Command("sh", "-c", "sleep 1000 & echo $$ $!; wait")
		cmd.Stdout = os.Stdout
		p, err := Start(cmd)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
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

// TestDiesWithItsParent kills the parent outright and looks for the child, and for the child's child.
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
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	var child, grandchild int
	if _, err := fmt.Sscan(line, &child, &grandchild); err != nil {
		t.Fatalf("read the pids from %q: %v", line, err)
	}
	// the child may be quicker than Start
	for end := time.Now().Add(20 * time.Second); guards(child) == 0; {
		if time.Now().After(end) {
			t.Fatal("the child has no guard after 20 s")
		}
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	parent.Wait()
	for _, pid := range []int{child, grandchild} {
		for end := time.Now().Add(20 * time.Second); alive(pid); {
			if time.Now().After(end) {
				syscall.Kill(pid, syscall.SIGKILL)
				t.Fatalf("process %d outlived its parent by 20 s", pid)
			}
		}
	}
}

// TestGuardBearsTheGroupsSignals: what is sent to the group must not end the guard before its time, and the
// guard ends with the group.
func TestGuardBearsTheGroupsSignals(t *testing.T) {
	p, err := Start(exec.Command("sh", "-c", "trap '' HUP INT QUIT ALRM TERM USR1 USR2; echo ready; sleep 1000"))
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); guards(p.Pid()) == 0; {
		if time.Now().After(end) {
			t.Fatal("there is no guard after 20 s")
		}
	}
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM} {
		if err := p.Signal(sig); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Signal(syscall.SIGCONT); err != nil { // delivered after the others
		t.Fatal(err)
	}
	if guards(p.Pid()) != 1 {
		t.Error("a signal to the group ended its guard")
	}
	p.Signal(syscall.SIGKILL)
	wait(t, p)
	if n := guards(p.Pid()); n != 0 {
		t.Errorf("%d guards are left behind", n)
	}
}

// guards counts the guards of a group that are ready for its signals.
func guards(group int) int {
	found := 0
	paths, _ := filepath.Glob("/proc/[0-9]*/status")
	for _, path := range paths {
		dir := filepath.Dir(path)
		words, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		pid, _ := strconv.Atoi(filepath.Base(dir))
		of, err := unix.Getpgid(pid)
		if err != nil || of != group || !bytes.Contains(words, []byte(guardScript)) {
			continue
		}
		status, _ := os.ReadFile(path)
		_, ignored, _ := strings.Cut(string(status), "SigIgn:\t")
		ignored, _, _ = strings.Cut(ignored, "\n")
		if mask, err := strconv.ParseUint(ignored, 16, 64); err == nil && mask>>(syscall.SIGUSR2-1)&1 == 1 {
			found++
		}
	}
	return found
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
	case <-time.After(20 * time.Second):
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
