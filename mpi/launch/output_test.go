package launch

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/testkit"
	"ddpbatch/mpi/launch/output"
)

// Four writers of a thousand lines on each stream: every file is complete and in
// order, and on the console no line is mixed with another.
func TestOutputOfManyWorkers(t *testing.T) {
	const lines = 1000
	w := newWorld(t, []int{4}, "lines", fmt.Sprint(lines))
	w.agree(w.run())
	wantConsole := map[string]int{}
	for rank := range 4 {
		var want strings.Builder
		for i := range lines {
			line := fmt.Sprintf("rank %d line %d %s\n", rank, i, strings.Repeat("x", i%97))
			want.WriteString(line)
			wantConsole[line] = 2 // once a stream
		}
		for _, stream := range []string{"out", "err"} {
			if got := w.logOf("n1", rank, stream); got != want.String() {
				t.Errorf("rank %d's %s has %d bytes, want %d", rank, stream, len(got), want.Len())
			}
		}
	}
	for line := range strings.Lines(w.out.String()) {
		wantConsole[line]--
	}
	for line, left := range wantConsole {
		if left != 0 {
			t.Fatalf("line %q is shown %d times too few", line, left)
		}
	}
	for _, write := range w.out.writes {
		if !strings.HasSuffix(write, "\n") {
			t.Fatalf("a write ends in the middle of a line: %q", write)
		}
	}
}

func TestLastLineIsCompleted(t *testing.T) {
	w := newWorld(t, []int{2}, "say", "one\ntwo")
	w.agree(w.run())
	if got := w.logOf("n1", 0, "out"); got != "one\ntwo" {
		t.Errorf("the log has %q: not what was written", got)
	}
	if got := w.out.String(); strings.Count(got, "one\n") != 2 || strings.Count(got, "two\n") != 2 || len(got) != 16 {
		t.Errorf("the console has %q", got)
	}
}

// A console or a disk that fails ends neither the workers nor the other's copy.
func TestOutputThatCannotBeWritten(t *testing.T) {
	t.Run("console", func(t *testing.T) {
		w := newWorld(t, []int{1}, "lines", "100")
		w.agents[0].Stdout, w.agents[0].Stderr = brokenWriter{}, brokenWriter{}
		if v := w.agree(w.run()); v.Cause != "done" {
			t.Errorf("verdict is %+v", v)
		}
		if got := strings.Count(w.logOf("n1", 0, "out"), "\n"); got != 100 {
			t.Errorf("the log has %d lines", got)
		}
	})
	t.Run("disk", func(t *testing.T) {
		if _, err := os.Stat("/dev/full"); err != nil {
			t.Skipf("needs /dev/full: %v", err)
		}
		w := newWorld(t, []int{1}, "lines", "100")
		must(t, os.Symlink("/dev/full", w.dir.LogPath(1, "n1", 0, "out")))
		if v := w.agree(w.run()); v.Cause != "done" {
			t.Errorf("verdict is %+v", v)
		}
		if got := strings.Count(w.out.String(), "\n"); got != 200 {
			t.Errorf("the console has %d lines", got)
		}
		if log := w.log.String(); strings.Count(log, "log cannot be written any more") != 1 {
			t.Errorf("agent 0 logged %s", log)
		}
	})
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("closed terminal") }

// A console that is slow takes nothing from the log, even when the worker ended
// long ago.
func TestSlowConsoleLosesNothing(t *testing.T) {
	w := newWorld(t, []int{1}, "lines", "1000")
	release := make(chan struct{})
	w.agents[0].Stdout = slowWriter{release}
	go func() {
		testkit.Eventually(t, "the worker's end", func() bool { return strings.Contains(w.log.String(), "worker ended") })
		time.AfterFunc(1250*time.Millisecond, func() { close(release) })
	}()
	w.agree(w.run())
	if got := strings.Count(w.logOf("n1", 0, "out"), "\n"); got != 1000 {
		t.Errorf("the log has %d lines, want 1000", got)
	}
}

// Who reads a worker's last words may get to that late, on a busy machine or behind a slow console. They are in its account all the same.
func TestLastWordsAreRead(t *testing.T) {
	release := make(chan struct{})
	mux, err := output.NewMux(output.Config{}, output.To{Stdout: slowWriter{release}}, nil)
	must(t, err)
	defer mux.Close()
	out, errs, err := mux.Worker(output.Worker{}, output.Paths{})
	must(t, err)
	errs.Drop()
	pipe, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", out.Pipe().Fd()), os.O_WRONLY, 0)
	must(t, err)
	out.Begin()
	_, err = pipe.WriteString("working\n")
	must(t, err)
	testkit.Eventually(t, "the first line is read", func() bool { return out.Grown() > 0 })
	_, err = pipe.WriteString("it failed\n")
	must(t, err)
	must(t, pipe.Close())
	time.AfterFunc(2*otherWords, func() { close(release) })
	(&worker{out: out, errs: errs}).readOut()
	if got := out.Tail(1); !slices.Equal(got, []string{"it failed"}) {
		t.Errorf("the last words are %q", got)
	}
	<-out.Done()
}

// slowWriter blocks until it is released.
type slowWriter struct{ release <-chan struct{} }

func (s slowWriter) Write(p []byte) (int, error) {
	<-s.release
	return len(p), nil
}
