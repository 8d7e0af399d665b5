package watch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"ddpbatch/internal/proc"
	"ddpbatch/internal/testkit"

	"go.uber.org/goleak"
)

// The test's binary is also a Go program that hangs.
func TestMain(m *testing.M) {
	if os.Getenv("WATCH_TEST_HANG") != "" {
		fmt.Println("ready")
		time.Sleep(time.Hour)
	}
	goleak.VerifyTestMain(m)
}

// hang starts a command that says "ready" and then hangs; the second value is its standard error.
func hang(t *testing.T, cmd *exec.Cmd) (*proc.Process, *bytes.Buffer) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	var problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = w, &problems
	p, err := proc.Start(cmd)
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Signal(syscall.SIGKILL)
		<-p.Done()
		r.Close()
	})
	if _, err := r.Read(make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	return p, &problems
}

func dump(t *testing.T, d Dumper, p *proc.Process) string {
	t.Helper()
	var out bytes.Buffer
	testkit.Within(t, testkit.Patience, func() {
		if _, err := d.Dump(t.Context(), p.Pid(), &out); err != nil {
			t.Error(err)
		}
	})
	return out.String()
}

func holds(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("there is no %q in\n%.4000s", part, text)
		}
	}
}

func TestDumpNamesAShellAndItsChild(t *testing.T) {
	p, _ := hang(t, exec.Command("/bin/sh", "-c", "sleep 1000 & echo ready; wait"))
	// Dump looks at a process and its threads one after another. They may not wait yet, so the dump is repeated.
	wants := []string{"nanosleep(", "\"sh\": S (sleeping), in ",
		fmt.Sprintf("process %d, \"sh\", child of %d: waiting", p.Pid(), os.Getpid()),
		fmt.Sprintf("\"sleep\", child of %d: waiting", p.Pid())}
	testkit.Eventually(t, fmt.Sprintf("both wait, which says %q", wants), func() bool {
		text := dump(t, Dumper{}, p)
		return !slices.ContainsFunc(wants, func(want string) bool { return !strings.Contains(text, want) })
	})
	select {
	case <-p.Done():
		t.Error("a look ended a program that is not written in Go")
	default:
	}
}

func TestDumpAsksAGoProgramForItsGoroutines(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "WATCH_TEST_HANG=1")
	p, problems := hang(t, cmd)
	testkit.Eventually(t, "its threads wait", func() bool { return strings.Contains(threadsText(p.Pid()), "futex(") })
	holds(t, dump(t, Dumper{}, p), fmt.Sprintf("process %d is written in Go", p.Pid()), "futex(", "threads (")
	<-p.Done()
	holds(t, problems.String(), "SIGQUIT", "goroutine 1 ", "watch.TestMain(") // goroutine 1 may not be asleep yet
}

func TestDumpReportsAStoppedProcess(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "WATCH_TEST_HANG=1")
	p, problems := hang(t, cmd)
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "it is stopped", func() bool {
		u, err := proc.Usages([]int{p.Pid()})
		return err == nil && u[0].Stopped()
	})
	holds(t, dump(t, Dumper{}, p), "stopped by a signal (SIGSTOP", "cannot be asked for its goroutines")
	p.Signal(syscall.SIGKILL)
	<-p.Done()
	if problems.Len() > 0 {
		t.Errorf("it wrote %q", problems)
	}
}

// program writes a script that stands for py-spy.
func program(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "py-spy")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestDumpHasPythonStacks(t *testing.T) {
	python, err := exec.LookPath("/usr/bin/python3")
	if err != nil {
		t.Skipf("needs Python: %v", err)
	}
	p, _ := hang(t, exec.Command(python, "-c", "import time; print('ready', flush=True); time.sleep(1000)"))
	for name, test := range map[string]struct {
		script string
		want   []string
	}{
		"works": {`echo "$@"; echo '    forward (model.py:7)'`,
			[]string{fmt.Sprintf("Python stacks of process %d:\n  dump --pid %d\n", p.Pid(), p.Pid()), "forward (model.py:7)"}},
		"refuses": {`echo 'Permission Denied' >&2; exit 1`, []string{"Permission Denied", "py-spy: exit status 1"}},
		"much":    {`while :; do echo 0123456789012345678901234567890123456789; done`, []string{"py-spy did not end within 5s"}},
	} {
		text := dump(t, Dumper{PySpy: program(t, test.script)}, p)
		holds(t, text, test.want...)
		if len(text) > 2*maxPySpy {
			t.Errorf("%s: %d bytes", name, len(text))
		}
	}
	for spy, want := range map[string]bool{"": true, program(t, "echo stacks"): false} {
		var out bytes.Buffer
		err := Dumper{PySpy: spy}.Look(t.Context(), p.Pid(), &out)
		if said := strings.HasSuffix(out.String(), "(no Python stacks: py-spy is not in the rank's PATH)\n"); err != nil || said != want {
			t.Errorf("with py-spy %q: %v\n%s", spy, err, out.String())
		}
	}
	if text := dump(t, Dumper{PySpy: "/nonexistent/py-spy"}, p); !strings.Contains(text, "no such file") {
		t.Errorf("without py-spy: %s", text)
	}
}

func TestDumpIsBounded(t *testing.T) {
	p, _ := hang(t, exec.Command("/bin/sh", "-c", `i=0; while [ $i -lt 60 ]; do sleep 1000 & i=$((i+1)); done; echo ready; wait`))
	holds(t, dump(t, Dumper{}, p), "(29 more processes are left out)")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out bytes.Buffer
	if _, err := (Dumper{}).Dump(ctx, p.Pid(), &out); err != nil {
		t.Error(err)
	}
	holds(t, out.String(), "nothing more could be found out: context canceled")
	broken := errors.New("broken")
	if _, err := (Dumper{}).Dump(t.Context(), p.Pid(), brokenWriter{broken}); !errors.Is(err, broken) {
		t.Errorf("the writer's error: %v", err)
	}
	p.Signal(syscall.SIGKILL)
	<-p.Done()
	out.Reset()
	if _, err := (Dumper{}).Dump(t.Context(), p.Pid(), &out); err != nil || out.String() != fmt.Sprintf("process %d has ended\n", p.Pid()) {
		t.Errorf("one that is gone: %v, %s", err, out.String())
	}
}

type brokenWriter struct{ err error }

func (w brokenWriter) Write([]byte) (int, error) { return 0, w.err }

func TestSystemCallIsNamedWithItsArguments(t *testing.T) {
	for line, want := range map[string][2]string{
		"running": {}, "": {}, "-1 0x7ffc 0x7f01": {}, "x 1 2 3 4 5 6 7 8": {}, "-1 1 2 3 4 5 6 7 8": {}, "0 1 2 3 4 5 6 7 8 9": {},
		fmt.Sprintf("%d 0x3 0x7f 0x10 0x0 0x0 0x0 0x7ffc 0x7f01", syscall.SYS_READ): {"read", "0x3, 0x7f, 0x10"},
		"99999 0x3 0x7f 0x10 0x0 0x0 0x0 0x7ffc 0x7f01":                             {"system call 99999", "0x3, 0x7f, 0x10"},
	} {
		if name, arguments := parseCall(line); name != want[0] || arguments != want[1] {
			t.Errorf("%q: %q, %q; want %q", line, name, arguments, want)
		}
	}
}
