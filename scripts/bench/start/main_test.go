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

// pretender says what any side of a contest says, and ends each pretended job early.
const pretender = `#!/bin/sh
echo met
echo '{"time_us":1}'
[ "$1" != simulate ]
`

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

// What was measured before an interrupt or a failure is printed, and written.
func TestRunKeepsWhatWasMeasured(t *testing.T) {
	program := filepath.Join(t.TempDir(), "ddpbatch")
	if err := os.WriteFile(program, []byte(pretender), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Chdir(filepath.Join("..", "..", "..")) // where it builds
	for name, tt := range map[string]struct {
		args, at string
		want     string // the error's
	}{
		"interrupted": {"--part launch --ranks 1,2", " 2 ranks: launch 1", context.Canceled.Error()},
		"a figure":    {"--part launch,meet --ranks 1", "no such progress", "meet: a job of 64x8 ended early"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			file := filepath.Join(t.TempDir(), "start.json")
			args := append(strings.Fields(tt.args), "--peers", "none", "--launches", "2", "--ddpbatch", program, "--json", file)
			var shown bytes.Buffer
			err := run(ctx, args, &shown, canceller{tt.at, cancel})
			if err == nil || !strings.Contains(err.Error(), tt.want) || errors.Is(err, context.Canceled) != (name == "interrupted") {
				t.Errorf("error %v, want %q", err, tt.want)
			}
			text, err := os.ReadFile(file)
			if err != nil || !strings.Contains(string(text), `"side": "ddpbatch run"`) {
				t.Errorf("the file has %q, %v", text, err)
			}
			if !strings.Contains(shown.String(), "### 1 rank,") {
				t.Errorf("it prints %q", shown.String())
			}
		})
	}
}
