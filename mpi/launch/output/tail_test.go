package output

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"ddpbatch/internal/testkit"
)

// As long as bytes of the worker's wait to be read the tail is behind, and it has caught up when they are, though the pipe stays open.
func TestTailCatchesUp(t *testing.T) {
	release := make(chan struct{})
	mux, err := NewMux(Config{}, To{Stdout: slowWriter{release}}, nil)
	must(t, err)
	out, errs, err := mux.Worker(Worker{}, Paths{})
	must(t, err)
	errs.Drop()
	if !errs.CaughtUp() {
		t.Error("there is something to come of a stream that was given up")
	}
	w := worker(t, out)
	if !out.CaughtUp() {
		t.Error("there is something to come before there was anything")
	}
	_, err = w.WriteString("first\n")
	must(t, err)
	testkit.Eventually(t, "the first read, which the console keeps", func() bool { return out.Grown() > 0 })
	if !out.CaughtUp() {
		t.Error("all was read")
	}
	_, err = w.WriteString("last\n")
	must(t, err)
	if out.CaughtUp() {
		t.Error("a line was not read")
	}
	close(release)
	testkit.Eventually(t, "the last line is read", out.CaughtUp)
	if got := out.Tail(9); !slices.Equal(got, []string{"first", "last"}) {
		t.Errorf("the tail is %q", got)
	}
	must(t, w.Close())
	wait(t, out)
	if !out.CaughtUp() {
		t.Error("there is something to come after the end")
	}
}

// The tail is bounded, and its first line is whole.
func TestTailIsBounded(t *testing.T) {
	var s tail
	line := strings.Repeat("x", 99)
	for i := range 1000 {
		s.add(fmt.Appendf(nil, "%03d%s\n", i, line))
	}
	got := s.lines(1000)
	if len(got) != (maxTail-1)/103 {
		t.Errorf("%d lines are kept", len(got))
	}
	for i, l := range got {
		if want := fmt.Sprintf("%03d%s", 1000-len(got)+i, line); l != want {
			t.Fatalf("line %d is %q, want %q", i, l, want)
		}
	}
	s.add(bytes.Repeat([]byte("y"), 3*maxTail))
	if got := s.lines(5); len(got) != 1 || got[0] != strings.Repeat("y", maxTail) {
		t.Errorf("one long line: %d lines", len(got))
	}
	if cap(s.ring) > 2*maxTail {
		t.Errorf("%d bytes are kept", cap(s.ring))
	}
}
