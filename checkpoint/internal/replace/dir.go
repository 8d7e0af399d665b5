package replace

import (
	"errors"
	"io/fs"
	"path/filepath"

	"ddpbatch/internal/vfs"
)

// Dir makes a folder, and its parents, where they are not there yet, and makes its name durable. It may be there from a process that
// died before its sync, so the parent is synced in any case.
func Dir(fsys vfs.FS, path string) error {
	err := fsys.Mkdir(path)
	if parent := filepath.Dir(path); errors.Is(err, fs.ErrNotExist) && parent != path {
		if err := Dir(fsys, parent); err != nil {
			return err
		}
		err = fsys.Mkdir(path)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return fsys.SyncDir(filepath.Dir(path))
}
