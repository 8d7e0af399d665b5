package output

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// If eight workers write at once, every file is complete, and every line on the console is whole and has its worker's label.
func TestOutputOfManyWorkersIsWhole(t *testing.T) {
	const workers, lines = 8, 500
	var shown screen
	mux, err := NewMux(Config{Prefix: DefaultPrefix}, To{Stdout: &shown, Stderr: &shown}, nil)
	must(t, err)
	defer mux.Close()
	var wg sync.WaitGroup
	want := map[string]int{}
	for rank := range workers {
		paths := pathsIn(t.TempDir())
		out, errs, err := mux.Worker(Worker{Host: "n1", Rank: rank}, paths)
		must(t, err)
		var text strings.Builder
		for i := range lines {
			line := fmt.Sprintf("rank %d line %d %s\n", rank, i, strings.Repeat("x", i%97))
			text.WriteString(line)
			want[fmt.Sprintf("[n1 %d] %s", rank, line)] = 2
		}
		for _, s := range []*Stream{out, errs} {
			wg.Go(func() {
				writeTo(t, s, func(w io.Writer) {
					for line := range strings.Lines(text.String()) {
						io.WriteString(w, line[:len(line)/2])
						io.WriteString(w, line[len(line)/2:])
					}
				})
			})
		}
		t.Cleanup(func() {
			if read(t, paths.Out) != text.String() || read(t, paths.Err) != text.String() {
				t.Errorf("a file of rank %d is not what it wrote", rank)
			}
		})
	}
	wg.Wait()
	for line := range strings.Lines(shown.String()) {
		want[line]--
	}
	for line, left := range want {
		if left != 0 {
			t.Fatalf("line %q is shown %d times too few", line, left)
		}
	}
	for _, write := range shown.writes {
		if !strings.HasSuffix(write, "\n") || !strings.HasPrefix(write, "[n1 ") {
			t.Fatalf("a write is not of whole lines: %q", write)
		}
	}
}

// torchrun's redirects, tees and filters, and ours by global rank, decide which output goes where.
func TestRedirectsTeesAndFiltersSelectOutput(t *testing.T) {
	mode := func(s string) Map {
		m, err := ParseMap(s)
		must(t, err)
		return m
	}
	for name, tc := range map[string]struct {
		cfg       Config
		out, errs bool // on the console, of rank 5 with local rank 1
	}{
		"by default":              {Config{}, true, true},
		"redirect all":            {Config{Redirects: mode("3")}, false, false},
		"redirect output":         {Config{Redirects: mode("1")}, false, true},
		"redirect error":          {Config{Redirects: mode("1:2")}, true, false},
		"redirect another":        {Config{Redirects: mode("0:3")}, true, true},
		"tee":                     {Config{Tees: mode("3")}, true, true},
		"tee wins":                {Config{Redirects: mode("3"), Tees: mode("1:2")}, false, true},
		"local rank":              {Config{LocalRanks: []int{1, 7}}, true, true},
		"another local rank":      {Config{LocalRanks: []int{0, 5}}, false, false},
		"rank":                    {Config{Ranks: []int{5}}, true, true},
		"another rank":            {Config{Ranks: []int{1}}, false, false},
		"filtered though teed":    {Config{Tees: mode("3"), LocalRanks: []int{0}}, false, false},
		"both filters":            {Config{Ranks: []int{5}, LocalRanks: []int{1}}, true, true},
		"one of two filters":      {Config{Ranks: []int{4}, LocalRanks: []int{1}}, false, false},
		"rank, but is redirected": {Config{Ranks: []int{5}, Redirects: mode("3")}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr screen
			mux, err := NewMux(tc.cfg, To{Stdout: &stdout, Stderr: &stderr}, nil)
			must(t, err)
			defer mux.Close()
			paths := pathsIn(t.TempDir())
			out, errs, err := mux.Worker(Worker{Rank: 5, LocalRank: 1}, paths)
			must(t, err)
			writeTo(t, out, put("to out\n"))
			writeTo(t, errs, put("to err\n"))
			if read(t, paths.Out) != "to out\n" || read(t, paths.Err) != "to err\n" {
				t.Error("a file lacks what was written")
			}
			if got := stdout.String(); got != map[bool]string{true: "to out\n"}[tc.out] {
				t.Errorf("standard output shows %q", got)
			}
			if got := stderr.String(); got != map[bool]string{true: "to err\n"}[tc.errs] {
				t.Errorf("standard error shows %q", got)
			}
		})
	}
	t.Run("redirected to no file", func(t *testing.T) {
		var shown screen
		mux, err := NewMux(Config{Redirects: mode("3")}, To{Stdout: &shown}, nil)
		must(t, err)
		out, errs, err := mux.Worker(Worker{}, Paths{})
		must(t, err)
		errs.Drop()
		writeTo(t, out, put("kept\n"))
		if shown.String() != "kept\n" {
			t.Error("it is nowhere")
		}
	})
}

// Lines of all ranks that contain a filter's text go to one file, even those of ranks that the console does not show. Filters do not look
// at labels.
func TestFilteredLinesGoToOneFile(t *testing.T) {
	dir := t.TempDir()
	cfg := Config{OutFilters: []string{"loss", "n1"}, ErrFilters: []string{"never"}, Redirects: Map{All: Both}}
	mux, err := NewMux(cfg, To{Filtered: Paths{Out: filepath.Join(dir, "f.out"), Err: filepath.Join(dir, "f.err")}}, nil)
	must(t, err)
	for rank := range 2 {
		out, errs, err := mux.Worker(Worker{Host: "n1", Rank: rank}, Paths{})
		must(t, err)
		writeTo(t, out, put("step 1\nloss 0.5\nin n1"))
		writeTo(t, errs, put("loss\n"))
	}
	mux.Close()
	want := "[n1 0] loss 0.5\n[n1 0] in n1\n[n1 1] loss 0.5\n[n1 1] in n1\n"
	if got := read(t, filepath.Join(dir, "f.out")); got != want {
		t.Errorf("the file of all ranks has %q, want %q", got, want)
	}
	if got := read(t, filepath.Join(dir, "f.err")); got != "" {
		t.Errorf("the file of all ranks' errors has %q", got)
	}
	if info, err := os.Stat(filepath.Join(dir, "f.out")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("closed terminal") }

// If the console or the disk fails, the other one still gets everything, and the failure is logged once.
func TestOutputThatCannotBeWritten(t *testing.T) {
	const lines = 5000
	text := strings.Repeat("a line\n", lines)
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	t.Run("console", func(t *testing.T) {
		mux, err := NewMux(Config{}, To{Stdout: brokenWriter{}}, logger)
		must(t, err)
		paths := pathsIn(t.TempDir())
		out, errs, err := mux.Worker(Worker{}, paths)
		must(t, err)
		errs.Drop()
		writeTo(t, out, put(text))
		if read(t, paths.Out) != text || strings.Count(log.String(), "cannot be shown any more") != 1 {
			t.Errorf("the file is not complete, or the log is %s", &log)
		}
	})
	t.Run("disk", func(t *testing.T) {
		if _, err := os.Stat("/dev/full"); err != nil {
			t.Skipf("needs /dev/full: %v", err)
		}
		var shown screen
		mux, err := NewMux(Config{}, To{Stdout: &shown}, logger)
		must(t, err)
		out, errs, err := mux.Worker(Worker{}, Paths{Out: "/dev/full"})
		must(t, err)
		errs.Drop()
		writeTo(t, out, put(text))
		if shown.String() != text || strings.Count(log.String(), "log cannot be written any more") != 1 {
			t.Errorf("the console is not complete, or the log is %s", &log)
		}
	})
	t.Run("no folder", func(t *testing.T) {
		mux, err := NewMux(Config{}, To{}, nil)
		must(t, err)
		missing := filepath.Join(t.TempDir(), "missing", "out")
		if _, _, err := mux.Worker(Worker{Rank: 7}, Paths{Err: missing}); err == nil || !strings.Contains(err.Error(), "rank 7") {
			t.Errorf("error is %v", err)
		}
		if _, err := NewMux(Config{ErrFilters: []string{"x"}}, To{Filtered: Paths{Err: missing}}, nil); err == nil {
			t.Error("the file of all ranks was opened")
		}
		if _, err := NewMux(Config{Prefix: "${nobody}"}, To{}, nil); err == nil {
			t.Error("a prefix that means nothing was taken")
		}
	})
}
