package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ddpbatch/internal/usage"
	"ddpbatch/scripts/bench/internal/tools"
)

// canceller is a writer for progress that cancels when a given text is written to it.
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

// The benchmark prints and writes what it measured before an interrupt or before a figure failed.
func TestRunKeepsWhatWasMeasured(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	file := filepath.Join(t.TempDir(), "figures.json")
	var shown bytes.Buffer
	err := bench.Run(ctx, []string{"--figures", "--mib", "12", "--launches", "1", "--dir", t.TempDir(), "--json", file}, &shown,
		canceller{"incompressible data:", cancel})
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

func TestOptionsAreReadAndChecked(t *testing.T) {
	o, err := parseOptions([]string{"--quick"}, io.Discard)
	if err != nil || o.Launches != 3 || o.mib != 96 {
		t.Errorf("--quick gives %+v, %v", o, err)
	}
	if o, err := parseOptions([]string{"--quick", "--figures", "--mib", "128"}, io.Discard); err != nil || !o.figures || o.mib != 128 {
		t.Errorf("--quick --figures --mib 128 gives %+v, %v", o, err)
	}
	for _, bad := range [][]string{{"--mib", "1"}, {"--dir", "/does/not/exist"}} {
		var misused *usage.Error
		if _, err := parseOptions(bad, io.Discard); !errors.As(err, &misused) {
			t.Errorf("%v: error %v, want one about usage", bad, err)
		}
	}
}

// The benchmark names everything that is missing, and how to do without it, before it measures anything.
func TestPrepareNamesWhatIsMissing(t *testing.T) {
	pretendPython(t)
	dir, _, _ := strings.Cut(os.Getenv("PATH"), ":")
	t.Setenv("PATH", dir) // which has no zstd
	_, err := prepare(t.Context(), t.TempDir())
	var missing *tools.MissingError
	if !errors.As(err, &missing) || !strings.Contains(err.Error(), "apt-get install zstd") || !strings.Contains(err.Error(), "--figures") {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := prepare(ctx, t.TempDir()); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}
