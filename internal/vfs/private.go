package vfs

import (
	"errors"
	"fmt"
	"io/fs"
)

// ErrNotPrivate: somebody else may read or change what a folder holds.
var ErrNotPrivate = errors.New("the folder is not this user's alone")

// PrivateDir makes a folder that only this user can enter, or makes sure that one that is there is such a folder; ErrNotPrivate where it is
// not. The parent must exist. A file system without owners, such as Mem, has nothing to check.
func PrivateDir(fsys FS, name string) error {
	if p, ok := fsys.(interface{ PrivateDir(name string) error }); ok {
		return p.PrivateDir(name)
	}
	if err := fsys.Mkdir(name); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// PrivateDir passes on what the function of that name asks for, as a mkdir.
func (in *Injector) PrivateDir(name string) error {
	return in.do(Op{Kind: "mkdir", Path: name}, func() error { return PrivateDir(in.fs, name) })
}

func notPrivate(name, why string) error {
	return fmt.Errorf("%s: %w: it %s; remove it if it may go, or use a parent folder of your own", name, ErrNotPrivate, why)
}
