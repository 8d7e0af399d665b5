package proc

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// statLine is a line of Linux 6.1, in which the fields that this package reads hold their numbers from proc(5): 14 to 17 are times, 20 is
// threads, and 22 is the start.
const statLine = "4242 (%s) S 4000 4100 3999 0 -1 4194304 900 0 0 0 14 15 16 17 20 0 20 0 2200 1000000 300 18446744073709551615 1 1 0 0 " +
	"0 0 0 4096 0 0 0 0 17 1 0 0 0 0 0 1 2 3 4 5 6 7 0\n"

func TestParseStat(t *testing.T) {
	for _, name := range []string{"sleep", "", "a b", ") R 1 2 3 (", "((", "))", "line\nend", "\xff\xfe"} {
		s, err := parseStat([]byte(strings.Replace(statLine, "%s", name, 1)))
		want := stat{
			pid: 4242, parent: 4000, group: 4100, threads: 20, name: name, state: 'S', start: 2200, environ: 6, cpu: 620 * time.Millisecond,
		}
		if err != nil || s != want {
			t.Errorf("%q: %+v, %v; want %+v", name, s, err, want)
		}
	}
	kernel := "2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 1 0 0"
	if s, err := parseStat([]byte(kernel)); err != nil || !s.kernel || s.exiting {
		t.Errorf("a kernel thread: %+v, %v", s, err)
	}
	if s, err := parseStat([]byte(strings.Replace(statLine, " 4194304 ", " 4194308 ", 1))); err != nil || s.kernel || !s.exiting {
		t.Errorf("one that is about to end: %+v, %v", s, err)
	}
	for _, bad := range []string{"", "1", "(x) S 1", "1 (x", "1 x) S", ")1(", "1 (x) S 1 2 3", "x (x) " + strings.Repeat("1 ", 30),
		"-1 (x) S" + strings.Repeat(" 1", 30), "1 (x) SS" + strings.Repeat(" 1", 30), "1 (x) S" + strings.Repeat(" x", 30)} {
		if s, err := parseStat([]byte(bad)); err == nil {
			t.Errorf("%q was read as %+v", bad, s)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte(statLine))
	f.Fuzz(func(t *testing.T, text []byte) {
		if s, err := parseStat(text); err == nil && s.pid < 1 {
			t.Errorf("process %d", s.pid)
		}
	})
}

func TestIdentityKnowsItsProcess(t *testing.T) {
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
