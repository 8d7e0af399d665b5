package lint

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTables: a line of text right below a table of Markdown is shown as one more row of it.
func TestTables(t *testing.T) {
	root := filepath.Join("..", "..")
	tables := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "runs"):
			return fs.SkipDir
		case !strings.HasSuffix(path, ".md"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		inTable, inCode := false, false
		for i, line := range strings.Split(string(text), "\n") {
			if strings.HasPrefix(strings.TrimSpace(line), "```") {
				inCode = !inCode
			}
			row := strings.HasPrefix(line, "|") && !inCode
			if row && !inTable {
				tables++
			}
			if inTable && !row && strings.TrimSpace(line) != "" {
				t.Errorf("%s:%d: %.60q stands right below a table", path, i+1, line)
			}
			inTable = row
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if tables < 50 {
		t.Errorf("only %d tables found below %s: the walk is wrong", tables, root)
	}
}
