package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// canceller is a place for progress that cancels once it is told of something.
type canceller struct {
	at     string
	cancel func()
}

func (c canceller) Write(p []byte) (int, error) {
	if strings.Contains(string(p), c.at) {
		c.cancel()
	}
	return len(p), nil
}

// What was measured before an interrupt, or a figure that fails, is printed and written.
func TestRunKeepsWhatWasMeasured(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	file := filepath.Join(t.TempDir(), "figures.json")
	var shown bytes.Buffer
	err := run(ctx, []string{"--figures", "--mib", "12", "--launches", "1", "--dir", t.TempDir(), "--json", file}, &shown, canceller{"incompressible data:", cancel})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	const figure = "time that checksums add"
	text, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(text), figure) {
		t.Errorf("the file has %q, %v", text, err)
	}
	if !strings.Contains(shown.String(), figure+" |") {
		t.Errorf("it prints %q", shown.String())
	}
}
