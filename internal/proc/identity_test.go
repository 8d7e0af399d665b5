package proc

import (
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

func TestIdentity(t *testing.T) {
	self, err := Self()
	if err != nil {
		t.Fatal(err)
	}
	if lives, known := self.Lives(); !lives || !known {
		t.Errorf("this process: lives %t, known %t", lives, known)
	}
	later := self
	later.Start++
	if lives, known := later.Lives(); lives || !known {
		t.Errorf("a process that had this one's number: lives %t, known %t", lives, known)
	}
	elsewhere := self
	elsewhere.Machine += "x"
	if _, known := elsewhere.Lives(); known {
		t.Error("a process of another machine is known")
	}
	if _, known := (Identity{}).Lives(); known {
		t.Error("no process is known")
	}
	child := exec.Command("cat")
	stdin, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	stat, err := readStat(child.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	other := Identity{Machine: self.Machine, PID: stat.pid, Start: stat.start}
	if lives, known := other.Lives(); !lives || !known {
		t.Errorf("a child: lives %t, known %t", lives, known)
	}
	if err := stdin.Close(); err != nil {
		t.Fatal(err)
	}
	if err := waitid(unix.P_PID, stat.pid, nil, unix.WEXITED|unix.WNOWAIT); err != nil { // it stays a zombie
		t.Fatal(err)
	}
	if lives, known := other.Lives(); lives || !known {
		t.Errorf("a child that has ended and is not reaped: lives %t, known %t", lives, known)
	}
	if err := child.Wait(); err != nil {
		t.Fatal(err)
	}
	if lives, known := other.Lives(); lives || !known {
		t.Errorf("a child that is gone: lives %t, known %t", lives, known)
	}
}
