package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// Two calls share a file. One line says how many tests of both calls ran, and why others were skipped.
func TestTallyAddsUpTheRuns(t *testing.T) {
	project(t, `package bad

import "testing"

func TestRuns(t *testing.T) { t.Run("below", func(t *testing.T) {}) }

func TestNeedsRoot(t *testing.T) { t.Skip("not root") }

func TestNeedsRootToo(t *testing.T) { t.Log("looks"); t.Skip("not root") }

func TestPrintsNothing(t *testing.T) { t.SkipNow() }

func TestIsAScript(t *testing.T) { t.Log("WORK=$WORK\n> [short] skip 'it takes long'\n"); t.SkipNow() }

func TestFails(t *testing.T) { t.Fail() }
`)
	file := filepath.Join(t.TempDir(), "tally")
	for _, words := range [][]string{{"./..."}, {"-run=NeedsRoot$", "./bad"}} {
		if _, err := run(t.Context(), words, files{tally: file}, new(bytes.Buffer)); err != nil {
			t.Fatal(err)
		}
	}
	got, err := readTally(file)
	if want := "4 tests ran, 5 were skipped (3: not root; 1: it takes long; 1: no reason given)"; err != nil || got.String() != want {
		t.Errorf("%q (%v), want %q", got, err, want)
	}
	if len(got.Slowest) != 3 { // without the subtest
		t.Errorf("timed: %v", got.Slowest)
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

// The slowest tests of all calls are printed, slowest first, and the last line says how many tests ran.
func TestSlowestAreNamed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tally")
	for call := range 2 {
		c := tally{Ran: 12}
		for i := range 12 {
			c.time(timed{fmt.Sprint("p Test", 2*i+call), float64(2*i + call)})
		}
		if err := c.keep(file); err != nil {
			t.Fatal(err)
		}
	}
	var printed bytes.Buffer
	if err := printTally(file, &printed); err != nil {
		t.Fatal(err)
	}
	want := "\nslowest:\n"
	for i := 23; i > 13; i-- {
		want += fmt.Sprintf("   %2d.0 s  p Test%d\n", i, i)
	}
	if want += "24 tests ran, none was skipped\n"; printed.String() != want {
		t.Errorf("printed %q, want %q", &printed, want)
	}
}
