package simulate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"ddpbatch/internal/rundir"
	"ddpbatch/internal/testkit"
)

// testConsole returns a console on a screen with that many columns (0: a pipe), its own run directory, and a function that reads its log.
func testConsole(t *testing.T, screen io.Writer, columns int) (c *console, run *rundir.Dir, log func() string) {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	if err := os.WriteFile(program, nil, 0o700); err != nil {
		t.Fatal(err)
	}
	run, err := rundir.Create(rundir.CreateConfig{
		Parent: dir, Spec: rundir.Spec{Name: "x", Job: json.RawMessage("{}")}, Binary: program, Now: time.Now(),
	})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "log")
	if c, err = openConsole(testEnv(screen, columns), run, path, "", false); err != nil {
		t.Fatal(err)
	}
	return c, run, func() string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
}

// TestConsoleKeepsLinesWhole: several agents write pieces of lines at the same time. Every line comes out in one piece, on the screen and
// in the log.
func TestConsoleKeepsLinesWhole(t *testing.T) {
	var screen bytes.Buffer
	c, _, log := testConsole(t, &screen, 0)
	const agents, lines = 8, 200
	var wg sync.WaitGroup
	for a := range agents {
		w := c.stream(a%2 == 1)
		wg.Go(func() {
			defer w.Close()
			for i := range lines {
				line := fmt.Sprintf("agent %d line %d %s\n", a, i, strings.Repeat("x", i))
				for piece := range strings.SplitSeq(line, " ") {
					if piece != "" && piece[len(piece)-1] != '\n' {
						piece += " "
					}
					if n, err := io.WriteString(w, piece); n != len(piece) || err != nil {
						t.Errorf("wrote %d of %d: %v", n, len(piece), err)
					}
				}
			}
			io.WriteString(w, fmt.Sprintf("agent %d last", a)) // Close ends the line
		})
	}
	wg.Wait()
	if err := c.close(); err != nil {
		t.Fatal(err)
	}
	for what, text := range map[string]string{"screen": screen.String(), "log": log()} {
		got := map[string]int{}
		for line := range strings.Lines(text) {
			got[line]++
		}
		if len(got) != agents*(lines+1) {
			t.Errorf("%s: %d different lines, want %d", what, len(got), agents*(lines+1))
		}
		for a := range agents {
			for i := range lines {
				if line := fmt.Sprintf("agent %d line %d %s\n", a, i, strings.Repeat("x", i)); got[line] != 1 {
					t.Fatalf("%s: %q is there %d times", what, line, got[line])
				}
			}
			if line := fmt.Sprintf("agent %d last\n", a); got[line] != 1 {
				t.Errorf("%s: %q is there %d times", what, line, got[line])
			}
		}
	}
}

func TestConsoleBoundsALineWithoutEnd(t *testing.T) {
	var screen bytes.Buffer
	c, _, _ := testConsole(t, &screen, 0)
	w := c.stream(false)
	piece := bytes.Repeat([]byte("y"), 50<<10)
	sent := 0
	for range 20 {
		w.Write(piece)
		sent += len(piece)
		if held := sent - screen.Len(); held > maxLine+len(piece) {
			t.Fatalf("%d bytes are held back", held)
		}
	}
	w.Close()
	if err := c.close(); err != nil {
		t.Fatal(err)
	}
	if got := strings.ReplaceAll(screen.String(), "\n", ""); len(got) != 20*len(piece) {
		t.Errorf("%d bytes came out of %d", len(got), 20*len(piece))
	}
}

// TestConsoleOutlivesItsScreen: agents go on even if their output cannot be shown or logged. The error is reported at the end.
func TestConsoleOutlivesItsScreen(t *testing.T) {
	c, _, log := testConsole(t, failingWriter{}, 0)
	w := c.stream(false)
	for range 3 {
		if n, err := io.WriteString(w, "line\n"); n != 5 || err != nil {
			t.Fatalf("the agent is told: %d, %v", n, err)
		}
	}
	if err := c.close(); !errors.Is(err, errFull) {
		t.Errorf("closed with %v, want %v", err, errFull)
	}
	if got := log(); got != "line\nline\nline\n" {
		t.Errorf("the log holds %q", got)
	}

	var screen bytes.Buffer
	c, _, _ = testConsole(t, &screen, 0)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	c.log.Close()
	c.log = full
	io.WriteString(c.stream(false), "line\n")
	if err := c.close(); err == nil || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("the log's disk is full: %v", err)
	}
	if screen.String() != "line\n" {
		t.Errorf("the screen shows %q", screen.String())
	}
}

// terminalScreen is what a terminal would show: the lines above, and the last one.
type terminalScreen struct {
	mu   sync.Mutex
	text string
}

func (s *terminalScreen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text += string(p)
	for { // as \r and "erase to the end of the line" do
		i := strings.Index(s.text, "\r\x1b[K")
		if i < 0 {
			return len(p), nil
		}
		start := strings.LastIndexByte(s.text[:i], '\n') + 1
		s.text = s.text[:start] + s.text[i+len("\r\x1b[K"):]
	}
}

func (s *terminalScreen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text
}

// TestProgressStaysBelow: the progress line is the last line on the screen, comes back after every other line, and is gone at the end. It
// never gets into the log.
func TestProgressStaysBelow(t *testing.T) {
	var screen terminalScreen
	c, run, log := testConsole(t, &screen, 80)
	metrics := `{"step":16,"steps":64,"epoch":0,"loss":0.5,"samples_per_s":1000,"comm_share":0.031,"left_s":75.5}` + "\n"
	if err := os.WriteFile(run.MetricsPath(), []byte(metrics), 0o600); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "there is a progress line", func() bool { return strings.HasSuffix(screen.String(), " left") })
	w := c.stream(false)
	io.WriteString(w, "first\nsec")
	io.WriteString(w, "ond\n")
	want := "[#......] 16/64 epoch 0 loss 0.5 1000 samples/s comm 3 % overlap 0 % 1m15s left"
	if got := screen.String(); got != "first\nsecond\n"+want {
		t.Errorf("the screen shows %q, want %q last", got, want)
	}
	if err := c.close(); err != nil {
		t.Fatal(err)
	}
	if got := screen.String(); got != "first\nsecond\n" {
		t.Errorf("at the end the screen shows %q", got)
	}
	if got := log(); got != "first\nsecond\n" {
		t.Errorf("the log holds %q", got)
	}
}

func TestProgressLineFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		columns := rapid.IntRange(20, 200).Draw(t, "columns")
		loss := rapid.Float64().Draw(t, "loss")
		m := rundir.Metrics{
			Step: rapid.Int64Range(0, 1e12).Draw(t, "step"), Steps: rapid.Int64Range(0, 1e12).Draw(t, "steps"),
			Epoch: new(rapid.IntRange(0, 1e9).Draw(t, "epoch")), Loss: &loss,
			SamplesPerSec: rapid.Float64Range(0, 1e12).Draw(t, "rate"), LeftS: rapid.Float64Range(0, 1e9).Draw(t, "left"),
		}
		if line := progressLine(m, columns); utf8.RuneCountInString(line) >= columns || strings.ContainsAny(line, "\r\n") {
			t.Fatalf("%d columns: %q", columns, line)
		}
	})
}

// TestProgressLineTakesAnyNumbers: metrics may hold any numbers. The bar is then empty or full.
func TestProgressLineTakesAnyNumbers(t *testing.T) {
	for step, want := range map[int64]string{-9_000_000_000_000: "[....", 9_000_000_000_000: "[####"} {
		if line := progressLine(rundir.Metrics{Step: step, Steps: 1}, 200); !strings.HasPrefix(line, want) {
			t.Errorf("step %d: %q", step, line)
		}
	}
}

// TestConsoleProgressFollowsEveryLine: even a run that is too short for the next tick shows its progress.
func TestConsoleProgressFollowsEveryLine(t *testing.T) {
	var screen bytes.Buffer
	c, run, _ := testConsole(t, &screen, 0) // not a terminal, so its own ticks draw nothing
	metrics := `{"step":32,"steps":64,"epoch":0,"loss":0.5,"samples_per_s":10}` + "\n"
	if err := os.WriteFile(run.MetricsPath(), []byte(metrics), 0o600); err != nil {
		t.Fatal(err)
	}
	untimed := &console{e: c.e, run: run, log: c.log, columns: 80}
	untimed.write([]byte("a line\n"), false, true)
	if got := screen.String(); !strings.HasPrefix(got, "a line\n") ||
		!strings.HasSuffix(got, "] 32/64 epoch 0 loss 0.5 10 samples/s comm 0 % overlap 0 % 0s left") {
		t.Errorf("the screen holds %q", got)
	}
	if err := c.close(); err != nil {
		t.Fatal(err)
	}
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errFull }

var errFull = errors.New("no space left on device")
