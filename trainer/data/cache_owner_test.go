package data

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"ddpbatch/internal/vfs"
)

// TestCacheOfAnotherUser: nothing that another user made, or may write to, is trained on or waited for.
func TestCacheOfAnotherUser(t *testing.T) {
	for _, test := range []struct {
		name   string
		expose func(dir, path string) error
	}{
		{"a folder that others may write to", func(dir, _ string) error { return os.Chmod(dir, 0o777) }},
		{"a folder of another user", func(dir, _ string) error { return os.Chown(dir, 12345, -1) }},
		{"a file of another user", func(_, path string) error { return os.Chown(path, 12345, -1) }},
		{"a lock of another user", func(_, path string) error {
			return errors.Join(os.Remove(path), os.Chown(path+".lock", 12345, -1))
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if os.Geteuid() != 0 && test.name != "a folder that others may write to" {
				t.Skip("only root can give files to another user")
			}
			dir := filepath.Join(t.TempDir(), "cache")
			cache := &Cache{Dir: dir}
			look := func() (source, error) { return testSource, nil }
			prepare := func() (*prepared, error) {
				return &prepared{Arrays: []array{newArray([]float32{1, 2, 3, 4}, 2, 2)}}, nil
			}
			if _, err := cache.load(t.Context(), look, prepare); err != nil {
				t.Fatal(err)
			}
			if err := test.expose(dir, cache.path(testSource)); err != nil {
				t.Fatal(err)
			}
			if _, err := cache.load(t.Context(), look, prepare); !errors.Is(err, vfs.ErrExposed) {
				t.Errorf("error %v, want %v", err, vfs.ErrExposed)
			}
		})
	}
}
