package lint

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// securityTest matches the name of a test or subtest in docs/security.md.
var securityTest = regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z0-9]+(?:/[^`]+)?)`")

// SecurityTests returns the tests that docs/security.md names. root is the module's root directory.
func SecurityTests(root string) ([]string, error) {
	path := filepath.Join(root, "docs", "security.md")
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, found := range securityTest.FindAllSubmatch(text, -1) {
		names = append(names, string(found[1]))
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%s names no test", path)
	}
	return names, nil
}

// testFunction matches the declaration of a test.
var testFunction = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)

// TestFiles maps the name of each test to the files that declare it. root is the module's root directory.
func TestFiles(root string) (map[string][]string, error) {
	files := map[string][]string{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "runs"):
			return fs.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		for _, found := range testFunction.FindAllSubmatch(text, -1) {
			files[string(found[1])] = append(files[string(found[1])], path)
		}
		return err
	})
	return files, err
}
