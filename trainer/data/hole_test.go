package data

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// holeOf is a file that begins with text and goes on with zero bytes up to size, which take no room on disk.
func holeOf(t *testing.T, dir, name, text string, size int64) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
	return path
}

// allocated is the memory that f allocates.
func allocated(f func()) uint64 {
	least := uint64(math.MaxUint64) // what else the process does only adds
	for range 3 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f()
		runtime.ReadMemStats(&after)
		least = min(least, after.TotalAlloc-before.TotalAlloc)
	}
	return least
}

// A table that is a hole, or a cell of any length, costs little whatever its size says.
func TestSparseTableIsCheap(t *testing.T) {
	const size = 1 << 30
	quoted := "1,\"" + strings.Repeat("9", 4096) + "9\",0\n"
	for name, c := range map[string]struct{ text, header, want string }{
		"nothing but a hole":       {"", "auto", "t.csv:1:1: a line of more than 64 MiB"},
		"a hole for a header":      {"", "yes", "t.csv:1:1: a line of more than 64 MiB"},
		"a hole after rows":        {"1,2,0\n\n1,2,0\n", "auto", "t.csv:4:1: a line of more than 64 MiB"},
		"a hole in quotes":         {"1,\"", "auto", "t.csv:1:1: a line of more than 64 MiB"},
		"a long number":            {"1," + strings.Repeat("9", 4097) + ",0\n", "auto", "t.csv:1:3: a cell of more than 4096 bytes"},
		"a long number in quotes":  {quoted, "auto", "t.csv:1:3: a cell of more than 4096 bytes"},
		"a long number as a class": {"1,0" + strings.Repeat("0", 4096) + "\n", "auto", "t.csv:1:3: a cell of more than 4096 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			path := holeOf(t, t.TempDir(), "t.csv", c.text, size)
			var err error
			got := allocated(func() { _, err = LoadCSV(t.Context(), nil, CSVConfig{Path: path, Header: c.header}) })
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
			if got > 1<<20 {
				t.Errorf("%d bytes allocated, want at most 1 MiB", got)
			}
		})
	}
}

// The longest cell, and the widest table as numpy.savetxt writes it, are read.
func TestLongestCell(t *testing.T) {
	text := "1." + strings.Repeat("0", maxCSVCell-2) + ",0\n" + strings.Repeat(" ", maxCSVCell+1) + "2,1\n"
	set, err := LoadCSV(t.Context(), nil, CSVConfig{Path: writeFile(t, "t.csv", []byte(text))})
	if err != nil {
		t.Fatal(err)
	}
	if got := all(set).X; len(got) != 2 || got[0] != 1 || got[1] != 2 {
		t.Errorf("inputs %v, want 1 and 2", got)
	}
	wide := strings.Repeat("-1.234567890123456789e-101,", maxCSVColumns-1) + "0\n"
	lines := newCSVLines([]byte(wide), "")
	if cells, err := lines.next(t.Context()); err != nil || len(cells) != maxCSVColumns {
		t.Errorf("%d cells, error %v; want %d", len(cells), err, maxCSVColumns)
	}
}

// endsAt is a context that ends when Err is asked for the given time.
type endsAt struct {
	context.Context
	asked, at int
}

func (c *endsAt) Err() error {
	if c.asked++; c.asked >= c.at {
		return context.Canceled
	}
	return nil
}

// A stop ends the reading of lines of which none is a row, and of one large file of a tree.
func TestStopEndsReading(t *testing.T) {
	lines := newCSVLines([]byte(strings.Repeat("\n", 4*betweenLooks)+"1,2\n"), "")
	cells, err := lines.next(&endsAt{t.Context(), 0, 2})
	if !errors.Is(err, context.Canceled) || cells != nil || len(lines.rest) < betweenLooks {
		t.Errorf("empty lines: %d cells, %d bytes left, error %v", len(cells), len(lines.rest), err)
	}
	text := strings.Repeat("text", betweenLooks)
	b := make([]byte, len(text))
	err = readExactly(&endsAt{t.Context(), 0, 3}, writeFile(t, "text", []byte(text)), b)
	if !errors.Is(err, context.Canceled) || b[0] != 't' || b[len(b)-1] != 0 {
		t.Errorf("a tree's file: error %v, its last byte %d", err, b[len(b)-1])
	}
}

// A tree with a hole in it is refused at the hole, before memory is taken for the rest.
func TestTreeWithAHole(t *testing.T) {
	dir := t.TempDir()
	path := holeOf(t, dir, "b", strings.Repeat("text", betweenLooks/2), 8<<20)
	listed, err := listTree(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	b := []byte(strings.Repeat("x", 8<<20))
	err = readExactly(t.Context(), path, b)
	if err == nil || !strings.Contains(err.Error(), "b holds 65536 zero bytes from byte 2097152 on") {
		t.Errorf("error %v, want one about the hole", err)
	}
	if b[3*betweenLooks] != 'x' {
		t.Error("the file was read on after the hole")
	}
	if _, err := listed.join(t.Context()); err == nil {
		t.Error("the tree is read")
	}
	if _, err := OpenText(t.Context(), nil, dir, 8); err == nil || !strings.Contains(err.Error(), "read text: "+path) {
		t.Errorf("error %v, want one that names the file", err)
	}
	// Zero bytes here and there may be a text's.
	few := makeTree(t, map[string]string{"a": "a" + strings.Repeat("\x00", treeHole) + "b", "c": strings.Repeat("\x00", treeHole-1)})
	if _, err := OpenText(t.Context(), nil, few, 8); err != nil {
		t.Errorf("a text with some zero bytes: %v", err)
	}
}
