package lines

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// writes keeps each Write.
type writes []string

func (w *writes) Write(p []byte) (int, error) {
	*w = append(*w, string(p))
	return len(p), nil
}

func TestWriterWritesWholeLines(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var shown writes
		w := &Writer{To: &shown}
		var all []byte
		for _, piece := range rapid.SliceOf(rapid.StringMatching(`[a-c\n]{0,9}`)).Draw(t, "pieces") {
			n, err := w.Write([]byte(piece))
			if n != len(piece) || err != nil {
				t.Fatalf("wrote %d of %d, %v", n, len(piece), err)
			}
			all = append(all, piece...)
		}
		if err := w.Finish(); err != nil {
			t.Fatal(err)
		}
		if len(all) > 0 && all[len(all)-1] != '\n' {
			all = append(all, '\n')
		}
		if got := strings.Join(shown, ""); got != string(all) {
			t.Fatalf("shown %q, want %q", got, all)
		}
		for _, write := range shown {
			if !strings.HasSuffix(write, "\n") {
				t.Fatalf("a write of %q", write)
			}
		}
	})
}

func TestLongLinesAreBounded(t *testing.T) {
	for given, most := range map[int]int{0: 64 << 10, 5000: 5000} {
		var shown writes
		w := &Writer{To: &shown, Max: given}
		chunk := bytes.Repeat([]byte("x"), 1000)
		total := 10*most + 5
		for sent := 0; sent < total; sent += len(chunk) {
			if _, err := w.Write(chunk[:min(len(chunk), total-sent)]); err != nil {
				t.Fatal(err)
			}
			if cap(w.partial) > 4*most {
				t.Fatalf("%d bytes are kept", cap(w.partial))
			}
		}
		if err := w.Finish(); err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(strings.Join(shown, ""), "x"); got != total {
			t.Errorf("%d bytes were shown, want %d", got, total)
		}
		for _, write := range shown {
			if len(write) > most+len(chunk)+1 || !strings.HasSuffix(write, "\n") {
				t.Errorf("a write of %d bytes", len(write))
			}
		}
	}
}

func TestWriterReturnsTheOutputsError(t *testing.T) {
	r, to := io.Pipe()
	r.Close()
	w := &Writer{To: to}
	for range 3 {
		if n, err := w.Write([]byte("a line\nand more")); n != 15 || !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("wrote %d of 15, %v", n, err)
		}
	}
	if len(w.partial) != len("and more") {
		t.Errorf("%q is kept", w.partial)
	}
}

// Each line that is passed on has its label once, however its bytes are split.
func TestEachLineHasItsLabelOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		label := rapid.StringMatching(`[<>\]]{1,3}`).Draw(t, "label")
		var shown writes
		w := &Writer{To: &shown, Label: label}
		var all strings.Builder
		for _, piece := range rapid.SliceOf(rapid.StringMatching(`[a-c\n]{0,9}`)).Draw(t, "pieces") {
			if n, err := w.Write([]byte(piece)); n != len(piece) || err != nil {
				t.Fatalf("wrote %d of %d, %v", n, len(piece), err)
			}
			all.WriteString(piece)
		}
		if err := w.Finish(); err != nil {
			t.Fatal(err)
		}
		var want strings.Builder
		for line := range strings.Lines(all.String()) {
			want.WriteString(label + strings.TrimSuffix(line, "\n") + "\n")
		}
		if got := strings.Join(shown, ""); got != want.String() {
			t.Fatalf("shown %q, want %q", got, want.String())
		}
		for _, write := range shown {
			if !strings.HasSuffix(write, "\n") || !strings.HasPrefix(write, label) {
				t.Fatalf("a write of %q", write)
			}
		}
	})
}

// A progress bar is shown while it goes on, and each of its states has the label. The output is the same as the input, however its bytes
// are split.
func TestProgressBarsAreLabelledAndKept(t *testing.T) {
	var shown writes
	w := &Writer{To: &shown, Label: "> ", Redraw: true}
	for _, step := range []struct{ in, out string }{
		{"\rstep 1", "> \r"}, {"\rstep 2", "> step 1\r"}, {"\r", ""}, {"step 3", "> step 2\r"}, {" of 3\n", "> step 3 of 3\n"},
		{"dos\r", ""}, {"\n", "> dos\r\n"}, {"dos\r\ndos\r\nx\ry", "> dos\r\n> dos\r\n> x\r"}, {"\n", "> y\n"}, {"end\r", ""},
	} {
		shown = nil
		if _, err := w.Write([]byte(step.in)); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(shown, ""); got != step.out {
			t.Errorf("of %q came %q, want %q", step.in, got, step.out)
		}
	}
	shown = nil
	if err := w.Finish(); err != nil || strings.Join(shown, "") != "> end\r\n" {
		t.Errorf("the end is %q, %v", shown, err)
	}

	ends := regexp.MustCompile(`[^\r\n]*(?:\r?\n|\r)`)
	rapid.Check(t, func(t *rapid.T) {
		label := rapid.SampledFrom([]string{"", "> "}).Draw(t, "label")
		var shown writes
		w := &Writer{To: &shown, Label: label, Redraw: true}
		var all strings.Builder
		for _, piece := range rapid.SliceOf(rapid.StringMatching(`[ab\r\n]{0,9}`)).Draw(t, "pieces") {
			if n, err := w.Write([]byte(piece)); n != len(piece) || err != nil {
				t.Fatalf("wrote %d of %d, %v", n, len(piece), err)
			}
			all.WriteString(piece)
		}
		if err := w.Finish(); err != nil {
			t.Fatal(err)
		}
		text := all.String()
		if text != "" && !strings.HasSuffix(text, "\n") {
			text += "\n"
		}
		if got, want := strings.Join(shown, ""), ends.ReplaceAllString(text, label+"$0"); got != want {
			t.Fatalf("shown %q, want %q", got, want)
		}
		for _, write := range shown {
			if !strings.HasPrefix(write, label) || strings.TrimRight(write, "\r\n") == write {
				t.Fatalf("a write of %q", write)
			}
		}
	})
}
