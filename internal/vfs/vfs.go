package vfs

import (
	"errors"
	"io"
	"io/fs"
	"syscall"
)

// FS is the part of a file system that checkpoints need. Implementations may be used by several
// goroutines at once.
type FS interface {
	// Create makes a new file for writing. It fails with fs.ErrExist where the name is taken
	// (O_EXCL), so that no writer ever opens the file of another.
	Create(name string) (File, error)
	// Open opens a regular file for reading. Anything else is ErrNotRegular, and is not waited for: a pipe has no writer.
	Open(name string) (File, error)
	// Rename gives a file another name, replacing a file that has it, atomically for every
	// reader, or a folder another name. A name that a folder has is taken (fs.ErrExist, as
	// os.Rename). It is durable only after SyncDir of the folder, of both where they differ.
	Rename(oldName, newName string) error
	// Remove deletes a file.
	Remove(name string) error
	// RemoveDir deletes an empty folder, and nothing that is no folder; a full one gives an
	// error that is fs.ErrExist, as rmdir(2) does with ENOTEMPTY or EEXIST.
	RemoveDir(name string) error
	// Mkdir makes one folder; its parent must exist.
	Mkdir(name string) error
	// ReadDir lists a folder, sorted by name.
	ReadDir(name string) ([]fs.DirEntry, error)
	Stat(name string) (fs.FileInfo, error)
	// SyncDir makes the names in a folder durable.
	SyncDir(name string) error
	// Space says what file system a name lies on and what room it has. It is a hint: quotas do
	// not show in it, and other users write at the same time.
	Space(name string) (Space, error)
}

// Space describes the file system that a name lies on.
type Space struct {
	Type        string // "ext4", "nfs", "lustre"...; statfs's magic number in hex where it has no name here
	Free, Total uint64 // bytes; Free is what an ordinary user may still fill
}

// File is an open file: written from start to end after Create, read at any offset after Open.
type File interface {
	io.Writer
	io.ReaderAt
	io.Closer
	Stat() (fs.FileInfo, error)
	// Preallocate reserves room for a file of size bytes, so that a full disk shows before the
	// first byte is written; the file's length stays as it is. Where the file system cannot it
	// does nothing and answers nil; ENOSPC, EDQUOT and other errors are returned.
	Preallocate(size int64) error
	// StartWriteback asks the system to begin writing the n bytes at offset to the disk, so that
	// Sync has less left to wait for. It is a hint: it promises nothing and reports nothing.
	StartWriteback(offset, n int64)
	// Sync makes the content durable. After it has failed the file's state is unknown: the
	// kernel may have dropped the pages that it could not write and report success the next
	// time (fsync(2); PostgreSQL's "fsyncgate"), so the caller must start a new file.
	Sync() error
}

// Rename gives a file of so many bytes (a folder: size -1) a name that nothing has and that nobody else gives to anything. The reply of a
// network file system may get lost: the request that is sent again then finds the source gone, or the target there. So where the source is
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

// Replace is Rename where the new name may be taken already, by a file whose place this one takes. If that has the same size, a lost
// reply cannot be told from a rename that did not happen: then the answer is believed.
func Replace(fsys FS, from, to string, size int64) error {
	old, err := fsys.Stat(to)
	if errors.Is(err, fs.ErrNotExist) || err == nil && old.Size() != size {
		return Rename(fsys, from, to, size)
	}
	return fsys.Rename(from, to)
}

// ReadFile reads a whole file. Of one with more than so many bytes it returns nothing but the size, of one that is cut short meanwhile what
// is left.
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
