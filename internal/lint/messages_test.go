package lint

import (
	"go/ast"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestTroubleshootingQuotesMessages: the program contains each message in the first columns of docs/troubleshooting.md. The message is in a
// string literal (as the program's own words, or as words of other programs that it recognizes), matches a pattern of the table of causes,
// or is in the batch script. Three dots stand for any text.
func TestTroubleshootingQuotesMessages(t *testing.T) {
	const path = "docs/troubleshooting.md"
	page, err := os.ReadFile(filepath.Join("..", "..", path))
	if err != nil {
		t.Fatal(err)
	}
	texts := messages(t)
	quoted := regexp.MustCompile("`([^`]+)`")
	count := 0
	for number, line := range strings.Split(string(page), "\n") {
		cells := strings.Split(line, "|")
		if len(cells) != 5 {
			continue
		}
		for _, found := range quoted.FindAllStringSubmatch(cells[1], -1) {
			if found[1] == "status" {
				continue
			}
			count++
			for part := range strings.SplitSeq(found[1], "...") {
				part = strings.TrimSpace(part)
				if len(part) > 3 && !strings.Contains(texts, part) && !isKnownCause(t, part) {
					t.Errorf("%s:%d: the program has no message with %q", path, number+1, part)
				}
			}
		}
	}
	if count < 90 {
		t.Errorf("only %d messages found in %s: the pattern is wrong", count, path)
	}
}

// isKnownCause reports whether a pattern of the table of causes matches text.
func isKnownCause(t *testing.T, text string) bool {
	t.Helper()
	for _, f := range sources(t) {
		if !strings.HasSuffix(filepath.ToSlash(f.path), "mpi/launch/blame/cause_table.go") {
			continue
		}
		matches := false
		ast.Inspect(f.ast, func(n ast.Node) bool {
			e, ok := n.(ast.Expr)
			if !ok {
				return true
			}
			pattern, ok := literal(e)
			if ok && len(pattern) > 3 {
				form, err := regexp.Compile(pattern)
				matches = matches || err == nil && form.MatchString(text)
			}
			return !ok
		})
		return matches
	}
	t.Fatal("the table of causes is in another file")
	return false
}

// messages returns the string literals of the program, joined where the source joins them, and the templates.
func messages(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, f := range sources(t) {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			e, ok := n.(ast.Expr)
			if !ok {
				return true
			}
			text, ok := literal(e)
			if ok {
				all.WriteString(text + "\n")
			}
			return !ok
		})
	}
	root := filepath.Join("..", "..", "templates")
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		all.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

// literal returns the text of a string literal, or of several that are joined by +. Operands that are not literals count as a space.
func literal(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind != token.STRING {
			return "", false
		}
		text, err := strconv.Unquote(e.Value)
		return text, err == nil
	case *ast.BinaryExpr:
		if e.Op != token.ADD {
			return "", false
		}
		left, leftOK := literal(e.X)
		right, rightOK := literal(e.Y)
		if !leftOK {
			left = " "
		}
		if !rightOK {
			right = " "
		}
		return left + right, leftOK || rightOK
	}
	return "", false
}
