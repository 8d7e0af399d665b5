package sim

import (
	"bytes"
	"context"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// screen collects what all tasks write, in whole writes.
type screen struct {
	mu     sync.Mutex
	out    bytes.Buffer
	open   int
	first  chan struct{} // closed at the first write
	closed sync.Once
}

func newScreen() *screen { return &screen{first: make(chan struct{})} }

func (s *screen) stream(bool) io.WriteCloser {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open++
	return (*end)(s)
}

type end screen

func (e *end) Write(p []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed.Do(func() { close(e.first) })
	return e.out.Write(p)
}

func (e *end) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.open--
	return nil
}

func run(t *testing.T, ctx context.Context, nodes int, script string) (*screen, int, error) {
	t.Helper()
	s := newScreen()
	code, err := Step{
		Allocation: Allocation{JobID: 7, Nodes: nodes, CPUs: 1, WorkDir: t.TempDir()},
		Command:    []string{"/bin/sh", "-c", script},
		Environ:    []string{"PATH=/usr/bin:/bin"},
		Output:     s.stream,
	}.Run(ctx)
	if s.open != 0 {
		t.Errorf("%d streams were left open", s.open)
	}
	return s, code, err
}

func TestStepRunsOnEveryNode(t *testing.T) {
	s, code, err := run(t, t.Context(), 3, `echo $SLURM_NODEID of $SLURM_NNODES`)
	if err != nil || code != 0 {
		t.Fatalf("code %d, %v", code, err)
	}
	lines := strings.Split(strings.TrimSpace(s.out.String()), "\n")
	slices.Sort(lines)
	if want := []string{"0 of 3", "1 of 3", "2 of 3"}; !slices.Equal(lines, want) {
		t.Errorf("got %q, want %q", lines, want)
	}
}

// TestStepFails holds that the code is the failed task's, and that the others do not outlive it
// (srun's --kill-on-bad-exit).
func TestStepFails(t *testing.T) {
	begin := time.Now()
	_, code, err := run(t, t.Context(), 3, `trap 'exit 0' TERM; : >ready.$SLURM_NODEID
		if [ $SLURM_NODEID = 1 ]; then until [ -e ready.0 ] && [ -e ready.2 ]; do :; done; exit 9; fi
		sleep 1000 & wait`)
	if err != nil || code != 9 {
		t.Errorf("code %d, %v; want 9", code, err)
	}
	if took := time.Since(begin); took > killWait {
		t.Errorf("the other tasks lived on for %v", took)
	}
}

func TestStepKilledTask(t *testing.T) {
	if _, code, err := run(t, t.Context(), 1, `kill -KILL $$`); err != nil || code != 137 {
		t.Errorf("code %d, %v; want 137", code, err)
	}
}

func TestStepCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := newScreen()
	go func() {
		<-s.first
		cancel()
	}()
	code, err := Step{
		Allocation: Allocation{JobID: 7, Nodes: 1, WorkDir: t.TempDir()},
		Command:    []string{"/bin/sh", "-c", `trap 'echo told; exit 5' TERM; echo ready; sleep 1000 & wait`},
		Environ:    []string{"PATH=/usr/bin:/bin"},
		Output:     s.stream,
	}.Run(ctx)
	if err != nil || code != 5 || s.out.String() != "ready\ntold\n" {
		t.Errorf("code %d, %v, output %q", code, err, s.out.String())
	}
}

func TestStepNotStarted(t *testing.T) {
	s := newScreen()
	_, err := Step{
		Allocation: Allocation{JobID: 7, Nodes: 2, WorkDir: t.TempDir()},
		Command:    []string{"/nonexistent/program"},
		Output:     s.stream,
	}.Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "node1") || s.open != 0 {
		t.Errorf("error %v, %d streams open", err, s.open)
	}
}
