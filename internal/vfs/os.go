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
	return file(os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644))
}

func (OS) Open(name string) (File, error) { return file(os.Open(name)) }

// file keeps a nil *os.File from becoming a File that is not nil.
func file(f *os.File, err error) (File, error) {
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (OS) Rename(oldName, newName string) error       { return os.Rename(oldName, newName) }
func (OS) Remove(name string) error                   { return os.Remove(name) }
func (OS) Mkdir(name string) error                    { return os.Mkdir(name, 0o755) }
func (OS) ReadDir(name string) ([]fs.DirEntry, error) { return os.ReadDir(name) }
func (OS) Stat(name string) (fs.FileInfo, error)      { return os.Stat(name) }

// RemoveDir is rmdir(2); os.Remove would take a file or a link, too.
func (OS) RemoveDir(name string) error {
	if err := syscall.Rmdir(name); err != nil {
		return &fs.PathError{Op: "rmdir", Path: name, Err: err}
	}
	return nil
}

// SyncDir opens the folder and syncs it, as fsync(2) asks for after a rename. File systems that
// cannot sync a folder say EINVAL or ENOTSUP (some FUSE and SMB mounts); there is nothing more to
// be had from them, so that is no error.
func (OS) SyncDir(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	err = d.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		err = nil
	}
	return errors.Join(err, d.Close())
}
