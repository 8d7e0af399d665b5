package lint

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestSecurityNamesTests: each test and each subtest that docs/security.md names exists.
func TestSecurityNamesTests(t *testing.T) {
	root := filepath.Join("..", "..")
	named, err := SecurityTests(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(named) < 20 {
		t.Fatalf("only %d tests are named: the pattern is wrong", len(named))
	}
	files, err := TestFiles(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range named {
		function, subtest, _ := strings.Cut(name, "/")
		if !slices.ContainsFunc(files[function], func(path string) bool { return hasSubtest(t, path, subtest) }) {
			t.Errorf("docs/security.md names %s, and there is no such test", name)
		}
	}
}

// hasSubtest reports whether a test file quotes each part of a subtest's name, or has a script of that name in its testdata.
func hasSubtest(t *testing.T, path, name string) bool {
	t.Helper()
	if name == "" {
		return true
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for part := range strings.SplitSeq(name, "/") {
		_, err := os.Stat(filepath.Join(filepath.Dir(path), "testdata", "script", part+".txtar"))
		if err != nil && !strings.Contains(string(text), strconv.Quote(part)) {
			return false
		}
	}
	return true
}

func TestHasSubtest(t *testing.T) {
	dir := t.TempDir()
	path, scripts := filepath.Join(dir, "p_test.go"), filepath.Join(dir, "testdata", "script")
	if err := os.MkdirAll(scripts, 0o700); err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{path: `t.Run("one", two); t.Run("three", nil)`, filepath.Join(scripts, "four.txtar"): ""} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]bool{
		"": true, "one": true, "one/three": true, "four": true, "two": false, "one/two": false, "on": false,
	} {
		if got := hasSubtest(t, path, name); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

// TestGlossary: each term of docs/glossary.md has one row, the number of terms is small, and the packages that the rows name exist.
func TestGlossary(t *testing.T) {
	const most = 60
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "glossary.md"))
	if err != nil {
		t.Fatal(err)
	}
	packages := map[string]bool{}
	for _, f := range sources(t) {
		packages[f.pkg] = true
	}
	quoted := regexp.MustCompile("`([^`]+)`")
	seen := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || strings.HasPrefix(line, "|---") || strings.TrimSpace(cells[1]) == "term" {
			continue
		}
		for term := range strings.SplitSeq(cells[1], ",") {
			if term = strings.TrimSpace(term); seen[term] {
				t.Errorf("%s has two rows", term)
			}
			seen[term] = true
		}
		for _, found := range quoted.FindAllStringSubmatch(cells[3], -1) {
			if !packages[found[1]] {
				t.Errorf("%slives in %s, and there is no such package", cells[1][1:], found[1])
			}
		}
	}
	if n := len(seen); n > most || n < most/2 {
		t.Errorf("docs/glossary.md has %d terms, want %d at most: what MPI, PyTorch or Slurm explain does not need a row", n, most)
	}
}

// TestTextDoesNotTouchATable: Markdown shows a line of text directly below a table as one more row of it.
func TestTextDoesNotTouchATable(t *testing.T) {
	root := filepath.Join("..", "..")
	tables := 0
	for _, path := range listed(t) {
		if !strings.HasSuffix(path, ".md") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // git also lists files whose deletion is not yet committed
			t.Fatal(err)
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
	}
	if tables < 50 {
		t.Errorf("only %d tables found below %s: the list of files is wrong", tables, root)
	}
}

// TestDocsNameFiles: each file of the program that architecture.md names by the end of its path exists. In the list of files to begin with,
// each name stands for exactly one file.
func TestDocsNameFiles(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]int{}
	for _, f := range tree(t) {
		path := filepath.ToSlash(f.path)
		for at := len(path); at >= 0; at = strings.LastIndexByte(path[:at], '/') {
			there[path[at:]]++
		}
	}
	pattern := regexp.MustCompile("`/?([a-z0-9_/]+\\.go)`")
	named := pattern.FindAllSubmatch(text, -1)
	if len(named) < 100 {
		t.Fatalf("only %d files are named: the pattern is wrong", len(named))
	}
	for _, found := range named {
		if there["/"+string(found[1])] == 0 {
			t.Errorf("docs/architecture.md names %s, and there is no such file", found[1])
		}
	}
	_, rest, begins := strings.Cut(string(text), "\n## To change X")
	where, _, ends := strings.Cut(rest, "\n## ")
	if !begins || !ends {
		t.Fatal("docs/architecture.md does not say where to begin")
	}
	for _, found := range pattern.FindAllStringSubmatch(where, -1) {
		if n := there["/"+found[1]]; n > 1 {
			t.Errorf("docs/architecture.md names %s to begin at, and %d files end so: write more of its path", found[1], n)
		}
	}
}

// TestRunPatternsNameTests: each test that scripts and docs name with -run exists. If none exists, go test runs nothing and passes.
func TestRunPatternsNameTests(t *testing.T) {
	root := filepath.Join("..", "..")
	tests, err := TestFiles(root)
	if err != nil {
		t.Fatal(err)
	}
	pattern := regexp.MustCompile(`-run[= ]'([^']*Test[^']*)'`)
	name := regexp.MustCompile(`Test\w*`)
	found := 0
	for _, path := range listed(t) {
		if strings.HasSuffix(path, ".go") || !strings.HasPrefix(path, "docs/") && !strings.HasPrefix(path, "scripts/") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		for _, run := range pattern.FindAllSubmatch(text, -1) {
			for _, n := range name.FindAllString(string(run[1]), -1) {
				found++
				if tests[n] == nil {
					t.Errorf("%s: -run '%s': there is no test %s", path, run[1], n)
				}
			}
		}
	}
	if found < 3 {
		t.Errorf("only %d names found: the search is wrong", found)
	}
}
