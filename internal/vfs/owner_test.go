package vfs

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestCheckOwner(t *testing.T) {
	for _, test := range []struct {
		name string
		mode os.FileMode
		uid  int // -1: this user
		good bool
	}{
		{"private", 0o700, -1, true},
		{"others may read", 0o755, -1, true},
		{"the group may write", 0o770, -1, false},
		{"anybody may write, sticky", 0o777 | os.ModeSticky, -1, false},
		{"another user's", 0o700, 12345, false},
	} {
		dir := filepath.Join(t.TempDir(), "dir")
		if err := errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, test.mode)); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(dir, test.uid, -1); err != nil {
			t.Logf("%s: not tried: %v", test.name, err)
			continue
		}
		info, err := os.Lstat(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := CheckOwner(dir, info); (err == nil) != test.good || err != nil && !errors.Is(err, ErrExposed) {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}
