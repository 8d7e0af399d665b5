package simulate

import (
	"bufio"
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"ddpbatch/internal/proc"
	"ddpbatch/internal/testkit"
)

// family leaves two processes behind in their own sessions. One has neither a cookie nor a parent. The other still has its cookie, and a
// child that has cleared its environment.
const family = `(env -i setsid sh -c "trap '' TERM; echo \$\$; sleep 1000; :" &)
setsid sh -c "trap '' TERM; env -i setsid sleep 1000 & echo \$\$; echo \$!; sleep 1000; :" & wait`

// TestAdoptEndsWhatAgentsLeave: no process that an agent has left behind outlives the attempt, and no other processes end with it.
func TestAdoptEndsWhatAgentsLeave(t *testing.T) {
	before := exec.Command("sleep", "1000") // a child of a wrapper that has executed this program
	before.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	if err := before.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = before.Wait() // it is killed
	}()
	defer func() {
		before.Process.Kill()
		<-ended
	}()
	var said bytes.Buffer
	end := adopt(slog.New(slog.NewTextHandler(&said, nil)))
	agent := exec.Command("/bin/sh", "-c", family)
	agent.Env = append(os.Environ(), proc.CookieVariable+"="+proc.NewCookie())
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	agent.Stdout = w
	p, err := proc.Start(agent)
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(r)
	var left []int
	for len(left) < 3 && lines.Scan() {
		var pid int
		if _, err := fmt.Sscan(lines.Text(), &pid); err != nil {
			t.Fatal(err)
		}
		left = append(left, pid)
	}
	other, err := proc.Start(exec.Command("sleep", "1000")) // this process waits for it
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	swept := false
	defer func() {
		for _, pid := range left {
			if !swept { // otherwise their numbers may have been reused
				unix.Kill(pid, unix.SIGKILL)
			}
		}
	}()
	end()
	swept = true
	testkit.Within(t, testkit.Patience, func() { // only they hold the other end
		for lines.Scan() {
			t.Errorf("it said %q", lines.Text())
		}
	})
	if len(left) != 3 || said.Len() > 0 {
		t.Errorf("%d processes; the log: %s", len(left), &said)
	}
	for what, gone := range map[string]<-chan struct{}{"a child from before": ended, "one that is waited for": other.Done()} {
		select {
		case <-gone:
			t.Errorf("%s was killed", what)
		default:
		}
	}
	if err := other.Signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-other.Done()
}
