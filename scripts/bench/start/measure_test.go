package main

import (
	"context"
	"errors"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// script returns a side that is a shell script; $1 is a file of the test.
func script(name, text, file string) side {
	return side{name: name, met: printsMet, command: func(int) *exec.Cmd { return exec.Command("/bin/sh", "-c", text, "sh", file) }}
}

func TestLaunchKnowsWhetherAllMet(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		met        bool
		fault      string
	}{
		{"in order", `echo hello; sleep 0.05; echo met; echo received; until [ -e "$1" ]; do :; done; sleep 0.05; echo met`, true, ""},
		{"says nothing", `echo hello`, false, "rank 0 did not say that all have met"},
		{"fails after it", `echo met; echo first >&2; echo the reason >&2; exit 3`, false, "exit code 3: the reason"},
		{"is killed", `kill -9 $$`, false, "exit code 137: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "received")
			s := script("", tt.text, file)
			s.met = func(line string) bool {
				if line == "received" { // so the lines before it were received, too
					if err := os.WriteFile(file, nil, 0o600); err != nil {
						t.Error(err)
					}
				}
				return printsMet(line)
			}
			got, err := launch(t.Context(), launchLimit, s, 1)
			if err != nil || math.IsNaN(got.met) == tt.met || math.IsNaN(got.ended) == tt.met || said(got.fault) != tt.fault {
				t.Errorf("%+v, %v", got, err)
			}
			if tt.met && (got.met < 50 || got.ended < got.met+50) {
				t.Errorf("%+v: the line came after 50 ms, and the end 50 ms after it was received", got)
			}
		})
	}
	absent := side{command: func(int) *exec.Cmd { return exec.Command("/nonexistent/mpirun") }}
	if got, err := launch(t.Context(), launchLimit, absent, 1); err != nil || !strings.HasPrefix(said(got.fault), "start it: ") {
		t.Errorf("%+v, %v", got, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := launch(ctx, launchLimit, script("", "sleep 1000", ""), 1); !errors.Is(err, context.Canceled) {
		t.Errorf("an interrupted launch returns %v", err)
	}
}

// The ranks of a launch that never ends have not met: otherwise ddpbatch would win by it.
func TestLaunchThatDoesNotEndHasNotMet(t *testing.T) {
	const limit = time.Second
	got, err := launch(t.Context(), limit, script("", "echo met; exec sleep 1000", ""), 1)
	if err != nil || !math.IsNaN(got.met) || !math.IsNaN(got.ended) || said(got.fault) != "did not end in 1s, and was killed" {
		t.Errorf("%+v, %v", got, err)
	}
}

// All sides are launched once without being counted, and then in turn. Each turn begins with another side.
func TestMeasureTakesTurns(t *testing.T) {
	file := filepath.Join(t.TempDir(), "order")
	c := comparison{title: "scripts"}
	for _, name := range []string{"ours", "A", "B"} {
		c.sides = append(c.sides, script(name, "echo "+name+` >>"$1"; echo met`, file))
	}
	table, err := c.measure(t.Context(), 3, 2, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(strings.Fields(string(text)), " "), "ours A B ours A B A B ours B ours A"; got != want {
		t.Errorf("order %q, want %q", got, want)
	}
	if len(table.Faults) > 0 || len(table.Rows[2].Times) != 3 ||
		math.IsNaN(float64(table.Rows[1].Ratio)) || !math.IsNaN(float64(table.Rows[0].Ratio)) {
		t.Errorf("%+v", table)
	}
}

func TestUnlabelledDropsOnlyTheLabel(t *testing.T) {
	for line, want := range map[string]string{"[n1 0] met": "met", "met": "met", "[n1 3] [a] b": "[a] b", "[1, 2]": "[1, 2]", "": ""} {
		if got := unlabelled(line); got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}

// said returns an error's text, or "" if it is nil.
func said(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
