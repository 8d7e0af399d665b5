package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/usage"
)

// pretender prints what any side of a comparison prints, and ends each simulated job early.
const pretender = `#!/bin/sh
echo met
echo '{"time_us":1}'
[ "$1" != simulate ]
`

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

// The benchmark prints and writes what it measured before an interrupt or a failure.
func TestRunKeepsWhatWasMeasured(t *testing.T) {
	program := filepath.Join(t.TempDir(), "ddpbatch")
	if err := os.WriteFile(program, []byte(pretender), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Chdir(filepath.Join("..", "..", "..")) // the folder in which it builds
	for name, tt := range map[string]struct {
		args, at string
		want     string // of the error
	}{
		"interrupted": {"--part launch --ranks 1,2", " 2 ranks: launch 1", context.Canceled.Error()},
		"a figure":    {"--part launch,rendezvous --ranks 1", "no such progress", "rendezvous: a job of 64x8 ended early"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			file := filepath.Join(t.TempDir(), "start.json")
			args := append(strings.Fields(tt.args), "--peers", "none", "--launches", "2", "--ddpbatch", program, "--json", file)
			var shown bytes.Buffer
			err := bench.Run(ctx, args, &shown, canceller{tt.at, cancel})
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

func TestParseOptionsReadsEveryOption(t *testing.T) {
	line := "--part rendezvous,crash,rendezvous --peers none --ranks 2,8 --quick --rendezvous 3x5"
	o, err := parseOptions(strings.Fields(line), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(o.parts, []string{"rendezvous", "crash"}) || len(o.peers) != 0 ||
		!slices.Equal(o.ranks, []int{2, 8}) || o.rendezvous != (shape{3, 5}) {
		t.Errorf("what is named beside --quick does not stay: %+v", o)
	}
	if o.Launches != 3 || o.idle != 5*time.Second {
		t.Errorf("--quick: %+v", o)
	}
	if o, err = parseOptions(nil, io.Discard); err != nil || o.Launches != 7 || o.rendezvous != (shape{64, 8}) ||
		!slices.Equal(o.ranks, []int{1, 2, 4}) || len(o.parts) != 4 || len(o.peers) != 3 {
		t.Errorf("by default: %+v, %v", o, err)
	}
}

func TestParseOptionsRefusesBadValues(t *testing.T) {
	for args, want := range map[string]string{
		"--part start":        `-part: "start" is not one of launch,`,
		"--peers nccl":        `-peers: "nccl" is not one of`,
		"--ranks 0":           `-ranks: "0" is not a number from 1 to 4096`,
		"--rendezvous 64":     `-rendezvous: "64" is not written like 64x8`,
		"--rendezvous 4x4x4":  `-rendezvous: "4x4x4" is not written like 64x8`,
		"--rendezvous 0x8":    `-rendezvous: "0x8" is not written like 64x8`,
		"--rendezvous 4096x2": `is more than 4096 workers`,
		"--idle 1ms":          "-idle is 1ms; it must be 1s to 1h",
	} {
		_, err := parseOptions(strings.Fields(args), io.Discard)
		var misused *usage.Error
		if !errors.As(err, &misused) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}
