package vfs

import (
	"errors"
	"io/fs"
	"syscall"
)

// Rename gives a file of so many bytes (a folder: size -1) a name that nothing has and that nobody else gives to anything. The reply of a network file
// system may get lost: the request that is sent again then finds the source gone, or the target there. So where the source is gone and
// the target is there, with the size, the rename has happened, whatever the answer was.
func Rename(fsys FS, from, to string, size int64) error {
	err := fsys.Rename(from, to)
	if err == nil || !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrExist) && !errors.Is(err, syscall.ESTALE) {
		return err
	}
	if _, gone := fsys.Stat(from); !errors.Is(gone, fs.ErrNotExist) {
		return err
	}
	info, there := fsys.Stat(to)
	if there != nil || info.IsDir() != (size < 0) || size >= 0 && info.Size() != size {
		return err
	}
	return nil
}

// Replace is Rename where the new name may be taken already, by a file whose place this one takes. If that has the same size, a lost
// reply cannot be told from a rename that did not happen: then the answer is believed.
func Replace(fsys FS, from, to string, size int64) error {
	old, err := fsys.Stat(to)
	if errors.Is(err, fs.ErrNotExist) || err == nil && old.Size() != size {
		return Rename(fsys, from, to, size)
	}
	return fsys.Rename(from, to)
}
