package testenv

import (
	"os"
	"path/filepath"
	"testing"
)

// Shared returns the path of a file or folder below the shared folder that stands beside the
// checkout (DDPBATCH_TEST_SHARED names another), or skips the test.
func Shared(t testing.TB, parts ...string) string {
	t.Helper()
	base := os.Getenv("DDPBATCH_TEST_SHARED")
	if base == "" {
		base = filepath.Join(root(t), "..", "shared")
	}
	path := filepath.Join(append([]string{base}, parts...)...)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("needs %s, which is not there: %v", filepath.Join(parts...), err)
	}
	return path
}

// root is the folder that holds go.mod.
func root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Fatal("no go.mod above the test's folder")
		}
		dir = up
	}
}
