package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Two calls share a file: one line says how many tests of both ran, and why others did not.
func TestTallyOfTwoRuns(t *testing.T) {
	project(t, `package bad

import (
	"testing"
	"time"
)

func TestRuns(t *testing.T) { t.Run("below", func(t *testing.T) {}) }

func TestNeedsRoot(t *testing.T) { t.Skip("not root") }

func TestNeedsRootToo(t *testing.T) { t.Log("looks"); t.Skip("not root") }

func TestSaysNothing(t *testing.T) { t.SkipNow() }

func TestFails(t *testing.T) { time.Sleep(50 * time.Millisecond); t.Fail() }
`)
	file := filepath.Join(t.TempDir(), "tally")
	for _, words := range [][]string{{"./..."}, {"-run=NeedsRoot$", "./bad"}} {
		if _, err := run(t.Context(), words, files{tally: file}, new(bytes.Buffer)); err != nil {
			t.Fatal(err)
		}
	}
	got, err := readTally(file)
	if want := "4 tests ran, 4 were skipped (3: not root; 1: no reason given)"; err != nil || got.String() != want {
		t.Errorf("%q (%v), want %q", got, err, want)
	}
	var printed bytes.Buffer
	if err := printTally(file, &printed); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(printed.String(), "\n")
	if len(lines) != 7 || !strings.Contains(lines[2], "0.1 s  example.test/m/bad TestFails") || lines[5] != got.String() {
		t.Errorf("printed %q", lines)
	}
	if got := (tally{Ran: 2}).String(); got != "2 tests ran, none was skipped" {
		t.Error(got)
	}
	if err := os.WriteFile(file, []byte("rubbish\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readTally(file); err == nil {
		t.Error("a file with rubbish was read as a tally")
	}
}
