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
		return nil, err // and no File that is not nil
	}
	return osFile{f}, nil
}

// CreateMode is OS's Create of a file with a mode of its own, whatever the umask is. Nobody whom that keeps out can open it before.
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

// Preallocate takes the errors by which file systems say that they have no fallocate(2) for none
// at all. NFS before 4.2 and many parallel file systems do.
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

// Remove is unlink(2); os.Remove would take an empty folder, too.
func (OS) Remove(name string) error {
	return pathError("remove", name, uninterrupted(func() error { return syscall.Unlink(name) }))
}

// RemoveDir is rmdir(2); os.Remove would take a file or a link, too.
func (OS) RemoveDir(name string) error {
	return pathError("rmdir", name, uninterrupted(func() error { return syscall.Rmdir(name) }))
}

// uninterrupted makes a call until it is not interrupted, as package os does: network and FUSE file systems answer EINTR.
func uninterrupted(call func() error) error {
	for {
		if err := call(); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// SyncDir opens the folder and syncs it, as fsync(2) asks for after a rename. File systems that
// cannot sync a folder say EINVAL or ENOTSUP (some FUSE and SMB mounts); there is nothing more to
// be had from them, so that is no error.
func (OS) SyncDir(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	return syncDir(d)
}

// syncDir closes the folder, too.
func syncDir(d *os.File) error {
	err := d.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		err = nil
	}
	return errors.Join(err, d.Close())
}

// pathError is what went wrong with a name, if anything did.
func pathError(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}

func linkError(oldName, newName string, err error) error {
	return &os.LinkError{Op: "rename", Old: oldName, New: newName, Err: err}
}
