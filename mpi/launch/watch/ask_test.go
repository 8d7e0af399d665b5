package watch

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"ddpbatch/internal/proc"
	"ddpbatch/internal/testkit"
	"ddpbatch/mpi/launch/stack"

	"golang.org/x/sys/unix"
)

// hangInPython starts a Python program that hangs, with faulthandler if asked for.
func hangInPython(t *testing.T, script, faulthandler string) (*proc.Process, Dumper) {
	t.Helper()
	python, err := exec.LookPath("/usr/bin/python3")
	if err != nil {
		t.Skipf("needs Python: %v", err)
	}
	path := filepath.Join(t.TempDir(), "train.py")
	if err := os.WriteFile(path, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python, path)
	cmd.Env = append(os.Environ(), "PYTHONFAULTHANDLER="+faulthandler)
	p, problems := hang(t, cmd)
	return p, Dumper{Written: func() string {
		<-p.Done() // its output is complete only then
		text := problems.String()
		problems.Reset()
		return text
	}}
}

const sleeper = `import time
def load():
    print("ready", flush=True)
    time.sleep(1000)
load()
`

func TestDumpAsksPythonForItsStacks(t *testing.T) {
	for name, before := range map[string]syscall.Signal{"it waits": syscall.SIGCONT, "it is stopped": syscall.SIGSTOP} {
		p, d := hangInPython(t, sleeper, "1")
		written := d.Written
		first := true
		d.Written = func() string { // the first call asks for earlier output, and does not wait
			if first {
				first = false
				return ""
			}
			return written()
		}
		testkit.Eventually(t, "it sleeps", func() bool { return Where(p.Pid()).Sleeps })
		if err := p.Signal(before); err != nil {
			t.Fatal(err)
		}
		limits := func() (now unix.Rlimit) {
			if err := unix.Prlimit(p.Pid(), unix.RLIMIT_CORE, nil, &now); err != nil {
				t.Fatal(err)
			}
			return now
		}
		hard := limits().Max
		if err := unix.Prlimit(p.Pid(), unix.RLIMIT_CORE, &unix.Rlimit{Cur: hard, Max: hard}, nil); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		found, err := d.Dump(t.Context(), p.Pid(), &out)
		if err != nil || len(found) != 1 || found[0].PID != p.Pid() || stack.Stand(found) != (stack.Standing{Line: "train.py:4 in load"}) {
			t.Errorf("%s: %+v, %v", name, found, err)
		}
		holds(t, out.String(), fmt.Sprintf("Python stacks of process %d", p.Pid()), `train.py", line 4 in load`)
		<-p.Done()
		if _, sig := p.End(); sig != syscall.SIGABRT {
			t.Errorf("%s: it ended by %v", name, sig)
		}
		if cores, _ := filepath.Glob("core*"); len(cores) > 0 {
			t.Errorf("%s: it left %v", name, cores)
		}
	}
}

// A Python program without faulthandler is not asked for its stacks, because it would die of SIGABRT and write nothing. So it can still
// handle TERM.
func TestPythonWithoutFaulthandlerIsLeftAlone(t *testing.T) {
	p, d := hangInPython(t, sleeper, "")
	var out bytes.Buffer
	found, err := d.Dump(t.Context(), p.Pid(), &out)
	if err != nil || len(found) > 0 {
		t.Errorf("%+v, %v", found, err)
	}
	holds(t, out.String(), "cannot be asked for its stacks without a faulthandler (set PYTHONFAULTHANDLER=1")
	select {
	case <-p.Done():
		t.Error("it was ended")
	default:
	}
}

// Where names the file that a thread waits for. The call refers to it by the number of a descriptor or by a path in the program's memory.
func TestWhereNamesTheFile(t *testing.T) {
	for call, script := range map[string]string{"openat": "echo ready; exec cat $0", "read": "exec 3<>$0; echo ready; exec cat <&3"} {
		fifo := filepath.Join(t.TempDir(), "data")
		if err := unix.Mkfifo(fifo, 0o600); err != nil {
			t.Fatal(err)
		}
		p, _ := hang(t, exec.Command("/bin/sh", "-c", script, fifo))
		testkit.Eventually(t, call+" names the file", func() bool {
			c := Where(p.Pid())
			return c.File == fifo && c.Text == "in "+call+" of "+fifo
		})
	}
}

func TestFileOfACallThatHasNone(t *testing.T) {
	dir := fmt.Sprintf("/proc/%d/task/%d/", os.Getpid(), os.Getpid())
	for call, arguments := range map[string]string{
		"read": "0xffffffffffffffff, 0x0, 0x0", "openat": "0xffffff9c, 0x0, 0x0", "futex": "0x1, 0x2, 0x3",
		"fsync": "rubbish", "open": "", "statx": "0x1", "newfstatat": "0xffffff9c, 0xffffffffffffffff, 0x0",
	} {
		if got := fileOf(dir, call, arguments); got != "" {
			t.Errorf("%s(%s) is of %q", call, arguments, got)
		}
	}
	if got := shortPath("/" + strings.Repeat("x", 300) + "\x1b[2J\xff"); len(got) > 210 || strings.ContainsRune(got, '\x1b') {
		t.Errorf("a path is %q", got)
	}
}
