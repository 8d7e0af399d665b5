package testkit

import (
	"os"
	"path/filepath"
	"testing"
)

// EnterTemp skips a test of several users where not all of them can enter the folder for temporary files: what they do there would fail
// for that alone, and what is closed to others needs no further defence.
func EnterTemp(t testing.TB) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(os.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for ; ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm()&0o001 == 0 {
			t.Skipf("TMPDIR (%s) is closed to other users: %s has mode %o", os.TempDir(), dir, info.Mode().Perm())
		}
		if dir == filepath.Dir(dir) {
			return
		}
	}
}
