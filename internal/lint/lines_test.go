package lint

import (
	"errors"
	"go/ast"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	maxWidth = 140
	tabWidth = 4
)

// TestLinesFit: no line of code or comment is wider than maxWidth characters. The lines of a raw string with several lines keep the width
// of what they quote, and a directive to the Go command must be one line.
func TestLinesFit(t *testing.T) {
	for _, f := range tree(t) {
		text, err := os.ReadFile(f.path)
		if err != nil {
			t.Fatal(err)
		}
		raw := f.rawLines()
		number := 0
		for line := range strings.Lines(string(text)) {
			number++
			if n := width(strings.TrimSuffix(line, "\n")); n > maxWidth && !raw[number] && !strings.HasPrefix(line, "//go:") {
				t.Errorf("%s:%d: %d characters, want %d at most", f.path, number, n, maxWidth)
			}
		}
	}
}

// TestProseFits: no line of Markdown is wider than that, except in tables and code blocks.
func TestProseFits(t *testing.T) {
	lines := 0
	for _, path := range listed(t) {
		if !strings.HasSuffix(path, ".md") {
			continue
		}
		text, err := os.ReadFile(filepath.Join("..", "..", path))
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // git also lists files whose deletion is not yet committed
			t.Fatal(err)
		}
		inCode := false
		for i, line := range strings.Split(string(text), "\n") {
			if strings.HasPrefix(strings.TrimSpace(line), "```") {
				inCode = !inCode
			}
			if inCode || strings.HasPrefix(line, "|") {
				continue
			}
			lines++
			if n := width(line); n > maxWidth {
				t.Errorf("%s:%d: %d characters, want %d at most", path, i+1, n, maxWidth)
			}
		}
	}
	if lines < 1000 {
		t.Errorf("only %d lines of prose found: the list of files is wrong", lines)
	}
}

func TestWidth(t *testing.T) {
	for line, want := range map[string]int{"": 0, "a": 1, "\t\ta": 9, "é": 1, " \t": 5} {
		if got := width(line); got != want {
			t.Errorf("width(%q) = %d, want %d", line, got, want)
		}
	}
}

// width returns how many columns line takes.
func width(line string) int {
	return len([]rune(line)) + (tabWidth-1)*strings.Count(line, "\t")
}

// rawLines returns the numbers of the lines on which a raw string of several lines begins, goes on or ends.
func (f file) rawLines() map[int]bool {
	lines := map[int]bool{}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING && strings.Contains(lit.Value, "\n") {
			first := f.fset.Position(lit.Pos()).Line
			for i := range strings.Count(lit.Value, "\n") + 1 {
				lines[first+i] = true
			}
		}
		return true
	})
	return lines
}
