package lint

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
)

// securityTest is how docs/security.md names a test, or a subtest.
var securityTest = regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z0-9]+(?:/[^`]+)?)`")

// SecurityTests are the tests that docs/security.md names, of the module whose root this is.
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
