package jobfile

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	codeSpan = regexp.MustCompile("`([^`]+)`")
	// ofTable begins a table of keys below [train]: "`model`:", "`schedule` (of the learning rate, by step):".
	ofTable = regexp.MustCompile("^`([a-z]+)`.*:$")
)

// documented are the keys in the first columns of those tables of docs/cli.md that are headed "key".
func documented(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "cli.md"))
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	prefix, inTable := "", false
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		switch match := ofTable.FindStringSubmatch(line); {
		case strings.HasPrefix(line, "## train"):
			prefix = "train."
		case strings.HasPrefix(line, "## "):
			prefix = ""
		case strings.HasPrefix(line, "[checkpoint], a table"):
			prefix = "checkpoint."
		case match != nil && prefix != "":
			prefix = "train." + match[1] + "."
		case strings.HasPrefix(line, "| key |"):
			inTable = true
		case !strings.HasPrefix(line, "|"):
			inTable = false
		case inTable && !strings.HasPrefix(line, "|---"):
			cell, _, _ := strings.Cut(strings.TrimPrefix(line, "|"), "|")
			for _, span := range codeSpan.FindAllStringSubmatch(cell, -1) {
				keys = append(keys, prefix+span[1])
			}
		}
	}
	return keys
}

// keysBelow are the dotted keys of n that hold values. A table of any keys is one.
func keysBelow(n *node, key string) []string {
	if n.read != nil || n.any != nil {
		return []string{key}
	}
	var keys []string
	for name, child := range n.keys {
		if child.gap != nil && child.gap.allow == nil {
			continue // it is refused, whatever its value
		}
		keys = append(keys, keysBelow(child, strings.TrimPrefix(key+"."+name, "."))...)
	}
	slices.Sort(keys)
	return keys
}

// TestDocumentedKeys: docs/cli.md has a row for every key of a job file, and for no other. The options of sbatch are not listed.
func TestDocumentedKeys(t *testing.T) {
	ours := []string{"slurm.extra", "slurm.skip"}
	var want []string
	for _, key := range keysBelow(schema(), "") {
		if !strings.HasPrefix(key, "slurm.") || slices.Contains(ours, key) {
			want = append(want, key)
		}
	}
	got := documented(t)
	for _, key := range want {
		// the row of requeue.max is about the keys below it
		if parent := key[:max(0, strings.LastIndex(key, "."))]; !slices.Contains(got, key) && !slices.Contains(got, parent) {
			t.Errorf("docs/cli.md has no row for %s", key)
		}
	}
	for _, key := range got {
		n := schema()
		for name := range strings.SplitSeq(key, ".") {
			if n != nil {
				n = n.child(name)
			}
		}
		if n == nil {
			t.Errorf("docs/cli.md has a row for %s, but the code knows no such key", key)
		}
	}
}
