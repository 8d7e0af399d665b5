package sim

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"ddpbatch/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// screen collects what all tasks write, one whole write at a time.
type screen struct {
	mu   sync.Mutex
	out  bytes.Buffer
	open int
	more chan struct{} // filled at every write
}

func newScreen() *screen { return &screen{more: make(chan struct{}, 1)} }

func (s *screen) stream(bool) io.WriteCloser {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open++
	return (*end)(s)
}

func (s *screen) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.String()
}

// await waits until the tasks have written the given number of lines.
func (s *screen) await(t *testing.T, lines int) {
	t.Helper()
	limit := time.After(testkit.Patience)
	for strings.Count(s.text(), "\n") < lines {
		select {
		case <-s.more:
		case <-limit:
			t.Fatalf("the tasks wrote %q, want %d lines", s.text(), lines)
		}
	}
}

type end screen

func (e *end) Write(p []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	select {
	case e.more <- struct{}{}:
	default:
	}
	return e.out.Write(p)
}

func (e *end) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.open--
	return nil
}

// start starts a step of one task per node.
func start(t *testing.T, nodes int, script string) (*screen, *Running) {
	t.Helper()
	return startStep(t, Step{Allocation: Allocation{JobID: 7, Nodes: PretendNodes(nodes), CPUs: []int{1}},
		Command: []string{"/bin/sh", "-c", script}})
}

func startStep(t *testing.T, step Step) (*screen, *Running) {
	t.Helper()
	s := newScreen()
	step.Environ, step.Output = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}, s.stream
	if step.Allocation.WorkDir == "" {
		step.Allocation.WorkDir = t.TempDir()
	}
	r, err := step.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil || s.open != 0 {
			t.Errorf("%d streams are open: %v", s.open, err)
		}
	})
	return s, r
}

// code waits for the end of a step, and returns its code.
func code(t *testing.T, r *Running) int {
	t.Helper()
	select {
	case <-r.Ended():
		return r.Code()
	case <-time.After(testkit.Patience):
		t.Fatal("the step does not end")
		return 0
	}
}

func TestStepRunsOnEveryNode(t *testing.T) {
	s, r := start(t, 3, `echo $SLURM_NODEID of $SLURM_NNODES`)
	if code := code(t, r); code != 0 {
		t.Fatalf("code %d", code)
	}
	lines := strings.Split(strings.TrimSpace(s.text()), "\n")
	slices.Sort(lines)
	if want := []string{"0 of 3", "1 of 3", "2 of 3"}; !slices.Equal(lines, want) {
		t.Errorf("got %q, want %q", lines, want)
	}
}

func TestStepGivesTasksTheirNodes(t *testing.T) {
	s, r := startStep(t, Step{
		Allocation: Allocation{JobID: 7, Nodes: PretendNodes(3), Step: []int{1, 2}, Tasks: []int{2, 1}},
		Command:    []string{"/bin/sh", "-c", `echo $SLURM_PROCID $SLURM_LOCALID $SLURMD_NODENAME`},
	})
	if code := code(t, r); code != 0 {
		t.Fatalf("code %d", code)
	}
	lines := strings.Split(strings.TrimSpace(s.text()), "\n")
	slices.Sort(lines)
	if want := []string{"0 0 node2", "1 1 node2", "2 0 node3"}; !slices.Equal(lines, want) {
		t.Errorf("got %q, want %q", lines, want)
	}
}

// TestStepFailsWithItsTask checks that the step's code is the failed task's, and that the other tasks do not outlive it (srun's
// --kill-on-bad-exit).
func TestStepFailsWithItsTask(t *testing.T) {
	_, r := startStep(t, Step{
		Allocation: Allocation{JobID: 7, Nodes: PretendNodes(3)}, KillWait: time.Hour, // without TERM, the others would live on
		Command: []string{"/bin/sh", "-c", `trap 'exit 0' TERM; : >ready.$SLURM_NODEID
			if [ $SLURM_NODEID = 1 ]; then until [ -e ready.0 ] && [ -e ready.2 ]; do :; done; exit 9; fi
			sleep 1000 & wait`},
	})
	if code := code(t, r); code != 9 {
		t.Errorf("code %d; want 9", code)
	}
}

// The other tasks live on if srun has the option to spare them.
func TestStepSparesTheOthers(t *testing.T) {
	_, r := startStep(t, Step{
		Allocation: Allocation{JobID: 7, Nodes: PretendNodes(2)}, Spare: true,
		Command: []string{"/bin/sh", "-c",
			`[ $SLURM_NODEID = 1 ] && { : >gone; exit 9; }; until [ -e gone ]; do :; done; trap 'exit 3' TERM; exit 4`},
	})
	if code := code(t, r); code != 9 {
		t.Errorf("code %d; want 9", code)
	}
}

func TestStepHasAKilledTasksCode(t *testing.T) {
	if _, r := start(t, 1, `kill -KILL $$`); code(t, r) != 137 {
		t.Errorf("code %d; want 137", r.Code())
	}
}

// The tasks get the signals, and those that do not end get KILL after KillWait.
func TestStepPassesSignalsOn(t *testing.T) {
	s, r := start(t, 1, `trap 'echo told; exit 5' TERM; echo ready; sleep 1000 & wait`)
	s.await(t, 1)
	r.Signal(syscall.SIGTERM)
	if code := code(t, r); code != 5 || s.text() != "ready\ntold\n" {
		t.Errorf("code %d, output %q", code, s.text())
	}
}

// A warning waits for the task's handler, and goes only to the task: a process of its group without a handler lives on.
func TestStepWarningWaitsForAHandler(t *testing.T) {
	s, r := start(t, 1, `sleep 1000 & until [ -e go ]; do :; done; trap 'echo told; told=1' USR2; echo ready; `+
		`until [ -n "$told" ]; do wait $!; done; kill -0 $! && echo alive; kill $!; exit 5`)
	if r.Warn(syscall.SIGUSR2) {
		t.Error("a task without a handler was warned")
	}
	if err := os.WriteFile(filepath.Join(r.step.Allocation.WorkDir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.await(t, 1)
	if !r.Warn(syscall.SIGUSR2) {
		t.Error("the task was not warned")
	}
	if code := code(t, r); code != 5 || s.text() != "ready\ntold\nalive\n" {
		t.Errorf("code %d, output %q", code, s.text())
	}
	if r.Warn(syscall.SIGUSR2) {
		t.Error("a task that has ended was warned")
	}
}

func TestStepKilledAfterKillWait(t *testing.T) {
	_, r := startStep(t, Step{
		Allocation: Allocation{JobID: 7, Nodes: PretendNodes(2)}, KillWait: 50 * time.Millisecond,
		Command: []string{"/bin/sh", "-c",
			`if [ $SLURM_NODEID = 1 ]; then until [ -e deaf ]; do :; done; exit 9; fi; trap '' TERM; : >deaf; while :; do sleep 0.1; done`},
	})
	if code := code(t, r); code != 137 {
		t.Errorf("code %d; want 137", code)
	}
}

// The step does not wait any longer for the processes of a lost node, and their end does not affect the others.
func TestStepLosesNode(t *testing.T) {
	s, r := start(t, 2, `echo ready; [ $SLURM_NODEID = 1 ] && exec sleep 1000; until [ -e go ]; do :; done; echo on; exit 0`)
	s.await(t, 2)
	if !r.Lose(1) || r.Lose(1) {
		t.Error("a node is not lost once")
	}
	if r.SignalNode(1, syscall.SIGTERM) {
		t.Error("a lost node got a signal")
	}
	if err := syscall.Mkfifo(r.step.Allocation.WorkDir+"/go", 0o600); err != nil {
		t.Fatal(err)
	}
	if code := code(t, r); code != 137 || !strings.Contains(s.text(), "on\n") {
		t.Errorf("code %d, output %q", code, s.text())
	}
}

func TestStepThatCannotStartNamesTheNode(t *testing.T) {
	s := newScreen()
	_, err := Step{
		Allocation: Allocation{JobID: 7, Nodes: PretendNodes(2), WorkDir: t.TempDir()},
		Command:    []string{"/nonexistent/program"},
		Output:     s.stream,
	}.Start()
	if err == nil || !strings.Contains(err.Error(), "node1") || s.open != 0 {
		t.Errorf("error %v, %d streams open", err, s.open)
	}
}
