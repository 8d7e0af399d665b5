package launch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/testkit"
)

func TestWorkerThatCannotStartSaysWhy(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		must(t, os.WriteFile(path, []byte(text), mode))
		must(t, os.Chmod(path, mode))
		return path
	}
	for name, tc := range map[string]struct {
		command, dir string
		exit         int
		want         string
	}{
		"not in PATH":       {"no-such-command", "", 127, `command "no-such-command" is not in the workers' PATH`},
		"not there":         {dir + "/nothing", "", 127, "does not exist"},
		"not executable":    {file("plain", "#!/bin/sh\n", 0o644), "", 126, "is not executable (chmod +x " + dir + "/plain)"},
		"a directory":       {dir, "", 126, "is a directory"},
		"below a file":      {dir + "/plain/x", "", 127, "does not exist"},
		"no interpreter":    {file("lost", "#!/no/such/interpreter\n", 0o755), "", 127, "an interpreter or loader that does not exist"},
		"no program":        {file("text", "hello\n", 0o755), "", 126, "is neither a program for this machine nor a script"},
		"no working folder": {"true", dir + "/nowhere", 1, "the working directory " + dir + "/nowhere cannot be used"},
		"folder is a file":  {"true", dir + "/plain", 1, "cannot be used"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, []int{1, 2}, "wait", "0")
			// Agent 1 cannot start its workers. The worker of agent 0 is stopped.
			w.agents[1].Command, w.agents[1].Dir = []string{tc.command}, tc.dir
			v := w.agree(w.run())
			if v.Cause != "start" || v.Exit != tc.exit || v.FirstRank != 1 || v.Host != "n2" ||
				!strings.HasPrefix(v.Message, "rank 1 on n2 was not started: ") || !strings.Contains(v.Message, tc.want) {
				t.Errorf("verdict is %+v; want exit %d and %q", v, tc.exit, tc.want)
			}
		})
	}
}

func TestLogsThatCannotBeOpened(t *testing.T) {
	w := newWorld(t, []int{1}, "say", "x")
	logs := filepath.Dir(w.dir.LogPath(1, "n1", 0, "out"))
	must(t, os.Remove(logs))
	v := w.agree(w.run())
	if v.Cause != "start" || v.Exit != 1 || !strings.Contains(v.Message, "open the log of rank 0") {
		t.Errorf("verdict is %+v", v)
	}
	// Here, the second of two files cannot be opened. The first one must not stay open.
	must(t, os.MkdirAll(w.dir.LogPath(1, "n1", 0, "err"), 0o700))
	if v := w.run()[0]; v.Cause != "start" {
		t.Errorf("verdict is %+v", v)
	}
}

// If four workers write a thousand lines to each stream, every file is complete and in order, and lines on the console are not mixed.
func TestOutputOfManyWorkersIsWhole(t *testing.T) {
	const lines = 1000
	w := newWorld(t, []int{4}, "lines", fmt.Sprint(lines))
	w.agree(w.run())
	wantConsole := map[string]int{}
	for rank := range 4 {
		var want strings.Builder
		for i := range lines {
			line := fmt.Sprintf("rank %d line %d %s\n", rank, i, strings.Repeat("x", i%97))
			want.WriteString(line)
			wantConsole[line] = 2 // once for each stream
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

// If the console or the disk fails, the workers and the other copy of their output go on.
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

// A slow console does not cut the log, even when the worker ended
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

// slowWriter blocks until it is released.
type slowWriter struct{ release <-chan struct{} }

func (s slowWriter) Write(p []byte) (int, error) {
	<-s.release
	return len(p), nil
}
