package output

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"ddpbatch/internal/testkit"

	"pgregory.net/rapid"
)

// screen remembers each write.
type screen struct {
	mu     sync.Mutex
	writes []string
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes = append(s.writes, string(p))
	return len(p), nil
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.writes, "")
}

// writeTo simulates a worker. write gets the worker's end of the pipe, and the worker ends when write returns.
func writeTo(t testing.TB, s *Stream, write func(w io.Writer)) {
	t.Helper()
	w := worker(t, s)
	write(w)
	must(t, w.Close())
	s.End()
	wait(t, s)
}

// worker begins the stream and returns the end that a worker would have inherited.
func worker(t testing.TB, s *Stream) *os.File {
	t.Helper()
	w, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", s.Pipe().Fd()), os.O_WRONLY, 0)
	must(t, err)
	s.Begin()
	return w
}

func wait(t testing.TB, s *Stream) {
	t.Helper()
	select {
	case <-s.Done():
	case <-time.After(testkit.Patience):
		t.Fatal("the stream does not end")
	}
}

func put(text string) func(io.Writer) { return func(w io.Writer) { io.WriteString(w, text) } }

func read(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	return string(text)
}

func pathsIn(dir string) Paths {
	return Paths{Out: filepath.Join(dir, "out"), Err: filepath.Join(dir, "err")}
}

// A progress bar is shown on the console while it is still being written, with its worker's prefix. The file has it as it was written.
func TestProgressIsShown(t *testing.T) {
	paths := pathsIn(t.TempDir())
	var shown screen
	mux, err := NewMux(Config{Prefix: "[${rank}] "}, To{Stdout: &shown}, nil)
	must(t, err)
	defer mux.Close()
	out, errs, err := mux.Worker(Worker{Rank: 3}, paths)
	must(t, err)
	errs.Drop()
	w := worker(t, out)
	put("\rstep 1\rstep 2")(w)
	testkit.Eventually(t, "the first step is shown", func() bool { return shown.String() == "[3] \r[3] step 1\r" })
	put("\n")(w)
	must(t, w.Close())
	out.End()
	wait(t, out)
	if got := shown.String(); got != "[3] \r[3] step 1\r[3] step 2\n" {
		t.Errorf("the console shows %q", got)
	}
	if got := read(t, paths.Out); got != "\rstep 1\rstep 2\n" {
		t.Errorf("the file has %q", got)
	}
}

// Bytes of a worker are appended to the file unchanged, whatever they are and in whatever pieces they come. The tail is their end.
func TestFileIsByteForByte(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(t.TempDir(), "")
		must(t, err)
		paths := pathsIn(dir)
		must(t, os.WriteFile(paths.Out, []byte("before"), 0o600))
		var shown screen
		mux, err := NewMux(Config{}, To{Stdout: &shown}, nil)
		must(t, err)
		defer mux.Close()
		out, errs, err := mux.Worker(Worker{}, paths)
		must(t, err)
		errs.Drop()
		pieces := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 40), 0, 20).Draw(rt, "pieces")
		big := rapid.IntRange(0, 3).Draw(rt, "long lines")
		var all []byte
		writeTo(t, out, func(w io.Writer) {
			for _, p := range append(pieces, bytes.Repeat([]byte("long"), big*20000)) {
				all = append(all, p...)
				_, err := w.Write(p)
				must(t, err)
			}
		})
		if got := read(t, paths.Out); got != "before"+string(all) {
			rt.Fatalf("the file has %d bytes, want %d", len(got), len("before")+len(all))
		}
		if out.Grown() != int64(len(all)) {
			rt.Fatalf("%d bytes are counted, want %d", out.Grown(), len(all))
		}
		// the console has all bytes, and additional line ends after incomplete and long lines
		if got, want := strings.ReplaceAll(shown.String(), "\n", ""), strings.ReplaceAll(string(all), "\n", ""); got != want {
			rt.Fatalf("the console has %d bytes besides line ends, want %d", len(got), len(want))
		}
		if len(all) < maxTail && len(all) > 0 {
			want := strings.Split(strings.TrimSuffix(string(all), "\n"), "\n")
			n := rapid.IntRange(1, len(want)+1).Draw(rt, "n")
			if got := out.Tail(n); !slices.Equal(got, want[max(0, len(want)-n):]) {
				rt.Fatalf("the last %d lines are %q, want %q", n, got, want)
			}
		}
	})
}

// A stream ends in time even if another process holds its pipe, and shows what was written.
func TestStreamEndsInTime(t *testing.T) {
	var shown screen
	mux, err := NewMux(Config{}, To{Stdout: &shown}, nil)
	must(t, err)
	out, errs, err := mux.Worker(Worker{}, Paths{})
	must(t, err)
	errs.Drop()
	kept := worker(t, out)
	defer kept.Close()
	_, err = kept.WriteString("half a line")
	must(t, err)
	began := time.Now()
	out.End()
	wait(t, out)
	if took := time.Since(began); took < lateOutput/2 || took > lateOutput+testkit.Patience {
		t.Errorf("it took %v", took)
	}
	if got := shown.String(); got != "half a line\n" {
		t.Errorf("shown is %q", got)
	}
}

// If a process writes forever into the pipe of a worker that has ended, its output is read only for a bounded time.
func TestEndlessLateOutputIsCutOff(t *testing.T) {
	mux, err := NewMux(Config{}, To{}, nil)
	must(t, err)
	out, errs, err := mux.Worker(Worker{}, Paths{})
	must(t, err)
	errs.Drop()
	w := worker(t, out)
	over := make(chan struct{})
	go func() {
		defer close(over)
		for {
			if _, err := w.Write(make([]byte, 1000)); err != nil { // EPIPE, once the reader is closed
				return
			}
		}
	}()
	out.End()
	wait(t, out)
	select {
	case <-over:
	case <-time.After(testkit.Patience):
		t.Error("the writer is still at it")
	}
	w.Close()
}

// A slow console does not cut the log, even when the worker ended long ago.
func TestSlowConsoleLosesNothing(t *testing.T) {
	release := make(chan struct{})
	mux, err := NewMux(Config{}, To{Stdout: slowWriter{release}}, nil)
	must(t, err)
	paths := pathsIn(t.TempDir())
	out, errs, err := mux.Worker(Worker{}, paths)
	must(t, err)
	errs.Drop()
	w := worker(t, out)
	// the console blocks on the data of the first read; the rest fills the pipe
	_, err = w.WriteString("first\n")
	must(t, err)
	testkit.Eventually(t, "the first read", func() bool { return out.Grown() > 0 })
	text := strings.Repeat("a line\n", 9000)
	_, err = w.WriteString(text)
	must(t, err)
	must(t, w.Close())
	out.End()
	time.AfterFunc(lateOutput+lateOutput/4, func() { close(release) })
	wait(t, out)
	if got := read(t, paths.Out); got != "first\n"+text {
		t.Errorf("the log has %d bytes, want %d", len(got), len("first\n"+text))
	}
}

// slowWriter blocks until it is released.
type slowWriter struct{ release <-chan struct{} }

func (s slowWriter) Write(p []byte) (int, error) {
	<-s.release
	return len(p), nil
}

// Grown and Tail are up to date while the worker runs.
func TestOutputIsThereWhileTheWorkerRuns(t *testing.T) {
	mux, err := NewMux(Config{}, To{}, nil)
	must(t, err)
	out, errs, err := mux.Worker(Worker{}, Paths{})
	must(t, err)
	if out.Grown() != 0 || out.Tail(5) != nil {
		t.Error("there is something before there was anything")
	}
	errs.Drop()
	wait(t, errs)
	w := worker(t, out)
	_, err = w.WriteString("one\n\ntwo\r\nthr")
	must(t, err)
	testkit.Eventually(t, "all bytes", func() bool { return out.Grown() == 13 })
	if got := out.Tail(3); !slices.Equal(got, []string{"", "two\r", "thr"}) {
		t.Errorf("the tail is %q", got)
	}
	if out.Tail(0) != nil {
		t.Error("no lines were asked for")
	}
	must(t, w.Close())
	wait(t, out)
}

// CaughtUp reports false while bytes of the worker wait to be read, and true once they are read, although the pipe stays open.
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

// Kept returns the bytes that come after Keep, up to its limit, each of them once.
func TestStreamKeepsWhatComesNext(t *testing.T) {
	m, err := NewMux(Config{}, To{Stdout: io.Discard, Stderr: io.Discard}, nil)
	must(t, err)
	defer m.Close()
	out, errs, err := m.Worker(Worker{Host: "n1"}, Paths{})
	must(t, err)
	errs.Drop()
	w := worker(t, out)
	say := func(text string) {
		t.Helper()
		_, err := io.WriteString(w, text)
		must(t, err)
		testkit.Eventually(t, "it is read", out.CaughtUp)
	}
	say("before\n")
	if got := out.Kept(); got != "" {
		t.Errorf("kept before Keep: %q", got)
	}
	out.Keep(10)
	say("12345\n")
	if got := out.Kept(); got != "12345\n" {
		t.Errorf("kept %q", got)
	}
	say("6789 and more\n")
	say("and more\n")
	if got := out.Kept() + out.Kept(); got != "6789" {
		t.Errorf("then kept %q", got)
	}
	must(t, w.Close())
	wait(t, out)
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

// BenchmarkStreams has eight workers write lines of 80 bytes as fast as they can. It reports the bytes per second of all together.
func BenchmarkStreams(b *testing.B) {
	const workers, perWorker = 8, 1 << 20
	chunk := bytes.Repeat(append(bytes.Repeat([]byte("x"), 79), '\n'), 100)
	for _, prefix := range []string{"", DefaultPrefix} {
		b.Run(fmt.Sprintf("prefix=%t", prefix != ""), func(b *testing.B) {
			dir := b.TempDir()
			b.SetBytes(workers * (perWorker / int64(len(chunk)) * int64(len(chunk))))
			b.ReportAllocs()
			for b.Loop() {
				mux, err := NewMux(Config{Prefix: prefix}, To{Stdout: io.Discard, Stderr: io.Discard}, nil)
				must(b, err)
				var wg sync.WaitGroup
				for rank := range workers {
					out, errs, err := mux.Worker(Worker{Host: "n1", Rank: rank}, Paths{Out: fmt.Sprintf("%s/%d", dir, rank)})
					must(b, err)
					errs.Drop()
					wg.Go(func() {
						writeTo(b, out, func(w io.Writer) {
							for range perWorker / len(chunk) {
								_, err := w.Write(chunk)
								must(b, err)
							}
						})
					})
				}
				wg.Wait()
				mux.Close()
			}
		})
	}
}

// BenchmarkStart measures what the streams of four workers cost at a run's start and end.
func BenchmarkStart(b *testing.B) {
	dir := b.TempDir()
	b.ReportAllocs()
	for b.Loop() {
		mux, err := NewMux(Config{Prefix: DefaultPrefix}, To{Stdout: io.Discard, Stderr: io.Discard}, nil)
		must(b, err)
		var streams []*Stream
		for rank := range 4 {
			out, errs, err := mux.Worker(Worker{Host: "n1", Rank: rank},
				Paths{Out: fmt.Sprintf("%s/%d.out", dir, rank), Err: fmt.Sprintf("%s/%d.err", dir, rank)})
			must(b, err)
			out.Begin()
			errs.Begin()
			streams = append(streams, out, errs)
		}
		for _, s := range streams {
			wait(b, s)
		}
		mux.Close()
	}
}
