package vfs

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// OS is the operating system's file system.
type OS struct{}

var _ FS = OS{}

func (OS) Create(name string) (File, error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, err // a nil File, not a File with a nil value
	}
	return osFile{f}, nil
}

// CreateMode creates a file as OS's Create does, with the given mode regardless of the umask. The mode applies from the beginning, so that
// nobody else can open the file before.
func CreateMode(name string, mode fs.FileMode) (File, error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode&0o600)
	if err != nil {
		return nil, err
	}
	if err := f.Chmod(mode); err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(name))
	}
	return osFile{f}, nil
}

func (OS) Open(name string) (File, error) {
	f, _, err := OpenRegular(name)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

// osFile is an open file of the operating system.
type osFile struct{ *os.File }

// Preallocate ignores the errors by which file systems report that they do not support fallocate(2), as NFS before 4.2 and many parallel
// file systems do.
func (f osFile) Preallocate(size int64) error {
	if size <= 0 {
		return nil
	}
	err := fallocate(f.File, size)
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.EINVAL) {
		err = nil
	}
	return pathError("preallocate", f.Name(), err)
}

func (f osFile) StartWriteback(offset, n int64) { startWriteback(f.File, offset, n) }

func (OS) Rename(oldName, newName string) error       { return os.Rename(oldName, newName) }
func (OS) Mkdir(name string) error                    { return os.Mkdir(name, 0o755) }
func (OS) ReadDir(name string) ([]fs.DirEntry, error) { return os.ReadDir(name) }
func (OS) Stat(name string) (fs.FileInfo, error)      { return os.Stat(name) }

// Remove is unlink(2), because os.Remove would also remove an empty directory.
func (OS) Remove(name string) error {
	return pathError("remove", name, uninterrupted(func() error { return syscall.Unlink(name) }))
}

// RemoveDir is rmdir(2), because os.Remove would also remove a file or a link.
func (OS) RemoveDir(name string) error {
	return pathError("rmdir", name, uninterrupted(func() error { return syscall.Rmdir(name) }))
}

// uninterrupted repeats a call that fails with EINTR, as package os does: network and FUSE file systems return it.
func uninterrupted(call func() error) error {
	for {
		if err := call(); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// SyncDir opens the directory and syncs it, as fsync(2) requires after a rename. File systems that cannot sync a directory return EINVAL or
// ENOTSUP (some FUSE and SMB mounts). That is not an error here, because they offer nothing better.
func (OS) SyncDir(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	return syncDir(d)
}

// syncDir also closes the directory.
func syncDir(d *os.File) error {
	err := d.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		err = nil
	}
	return errors.Join(err, d.Close())
}

// pathError returns err with an operation and a name, or nil if err is nil.
func pathError(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}

func linkError(oldName, newName string, err error) error {
	return &os.LinkError{Op: "rename", Old: oldName, New: newName, Err: err}
}
