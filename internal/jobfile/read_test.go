package jobfile

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestReadTextTakesPipes: a job file may come from a shell's <(...), whose writer may still run.
func TestReadTextTakesPipes(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadText(t.Context(), pipe); err == nil ||
		!strings.Contains(err.Error(), pipe+" is a pipe to which nothing was written") {
		t.Errorf("a pipe without a writer: %v", err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	type read struct {
		text []byte
		err  error
	}
	done := make(chan read, 1)
	go func() {
		text, err := ReadText(t.Context(), "/proc/self/fd/"+strconv.Itoa(int(r.Fd())))
		done <- read{text, err}
	}()
	for _, part := range []string{"name = ", `"x"`} {
		if _, err := w.WriteString(part); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if got := <-done; got.err != nil || string(got.text) != `name = "x"` {
		t.Errorf("a shell's pipe: %q, %v", got.text, got.err)
	}
}

// TestReadTextGivesUpOnAnOpenPipe: if the writer keeps a pipe open, ReadText does not wait forever.
func TestReadTextGivesUpOnAnOpenPipe(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "job.toml")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	w, err := os.OpenFile(pipe, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if _, err := w.WriteString("name ="); err != nil {
		t.Fatal(err)
	}
	text, err := readTextWithin(t.Context(), pipe, time.Millisecond)
	if err == nil || !strings.Contains(err.Error(), "write the text to a file first") {
		t.Errorf("read %q, %v", text, err)
	}
}
