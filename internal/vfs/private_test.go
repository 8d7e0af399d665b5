package vfs

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestPrivateDir: a folder is made with mode 0700 and accepted again; a link, a file, one that others may enter, and one of another
// user are refused.
func TestPrivateDir(t *testing.T) {
	dir := t.TempDir()
	own := filepath.Join(dir, "own")
	for range 2 {
		if err := PrivateDir(NewInjector(OS{}, nil), own); err != nil {
			t.Fatal(err)
		}
	}
	info, err := os.Stat(own)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Fatalf("%v, %v", info, err)
	}
	open, link, file, foreign := filepath.Join(dir, "open"), filepath.Join(dir, "link"), filepath.Join(dir, "file"), filepath.Join(dir, "foreign")
	if err := errors.Join(os.Mkdir(open, 0o700), os.Chmod(open, 0o750), os.Symlink(own, link), os.WriteFile(file, nil, 0o600), os.Mkdir(foreign, 0o700)); err != nil {
		t.Fatal(err)
	}
	refused := []string{open, link, file}
	if err := os.Chown(foreign, 12345, -1); err != nil {
		t.Logf("without the folder of another user: %v", err)
	} else {
		refused = append(refused, foreign)
	}
	for _, name := range refused {
		if err := PrivateDir(OS{}, name); !errors.Is(err, ErrExposed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
