package vfs

import (
	"errors"
	"io"
	"io/fs"
	"syscall"
)

// FS is the part of a file system that checkpoints need. Implementations must be safe for concurrent use.
type FS interface {
	// Create creates a new file for writing. It fails with fs.ErrExist if the name exists (O_EXCL), so that no writer ever opens another's
	// file.
	Create(name string) (File, error)
	// Open opens a regular file for reading. For anything else it returns ErrNotRegular without waiting, because nobody may write to a
	// pipe.
	Open(name string) (File, error)
	// Rename renames a file, atomically for every reader, and replaces an existing file, or it renames a directory. It fails with
	// fs.ErrExist if newName is a directory, as os.Rename does. The rename is durable only after SyncDir of the directory, or of both
	// directories.
	Rename(oldName, newName string) error
	// Remove deletes a file.
	Remove(name string) error
	// RemoveDir deletes an empty directory, and nothing else. If the directory is not empty, the error is fs.ErrExist, as rmdir(2) returns
	// ENOTEMPTY or EEXIST.
	RemoveDir(name string) error
	// Mkdir creates one directory, whose parent must exist.
	Mkdir(name string) error
	// ReadDir lists a directory, sorted by name.
	ReadDir(name string) ([]fs.DirEntry, error)
	Stat(name string) (fs.FileInfo, error)
	// SyncDir makes the names in a directory durable.
	SyncDir(name string) error
	// Space returns the file system on which a name is, and its space. It is only a hint: it does not include quotas, and other users write
	// at the same time.
	Space(name string) (Space, error)
}

// Space describes the file system on which a name is.
type Space struct {
	Type        string // "ext4", "nfs", "lustre"...; for an unknown type statfs's magic number in hex
	Free, Total uint64 // bytes; Free is what an ordinary user may still use
}

// File is an open file. After Create it is written from start to end, and after Open it is read at any offset.
type File interface {
	io.Writer
	io.ReaderAt
	io.Closer
	Stat() (fs.FileInfo, error)
	// Preallocate reserves space for a file of size bytes, so that a full disk is noticed before the first byte is written. The file's
	// length stays the same. If the file system does not support it, Preallocate does nothing and returns nil. It returns ENOSPC, EDQUOT
	// and other errors.
	Preallocate(size int64) error
	// StartWriteback asks the system to begin writing the n bytes at offset to the disk, so that Sync has less to wait for. It is only a
	// hint, and reports no errors.
	StartWriteback(offset, n int64)
	// Sync makes the content durable. After an error the file's state is unknown: the kernel may have dropped the pages that it could not
	// write, and report success the next time (fsync(2); PostgreSQL's "fsyncgate"). So the caller must start a new file.
	Sync() error
}

// Rename renames a file of size bytes (a directory: size -1) to a name that does not exist and that no other process creates. The reply of
// a network file system may be lost; the repeated request then finds no source, or an existing target. So if the source is gone and the
// target exists with this size, the rename has happened, whatever the reply was.
// gone and the target is there, with the size, the rename has happened, whatever the answer was.
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

// Replace is Rename for a name that may exist, and whose file is replaced. If that file has the same size, a lost reply cannot be
// distinguished from a rename that did not happen. Then Replace returns the error.
func Replace(fsys FS, from, to string, size int64) error {
	old, err := fsys.Stat(to)
	if errors.Is(err, fs.ErrNotExist) || err == nil && old.Size() != size {
		return Rename(fsys, from, to, size)
	}
	return fsys.Rename(from, to)
}

// ReadFile reads a whole file. If it has more than most bytes, ReadFile returns only the size. If it is cut short meanwhile, ReadFile
// returns what is left.
func ReadFile(fsys FS, name string, most int64) (data []byte, size int64, err error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	if size = info.Size(); size > most {
		return nil, size, nil
	}
	data = make([]byte, size)
	n, err := f.ReadAt(data, 0)
	if n == len(data) || errors.Is(err, io.EOF) {
		err = nil
	}
	return data[:n], size, err
}
