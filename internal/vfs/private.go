package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// PrivateDir makes a folder that only this user can enter, or makes sure that one that is there is such a folder; ErrExposed where it is
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

// PrivateDir does not follow a link that somebody may have put there.
func (OS) PrivateDir(name string) error {
	if err := os.Mkdir(name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := os.Lstat(name)
	if err != nil {
		return err
	}
	return checkPrivate(name, info)
}

// checkPrivate returns ErrExposed unless info is that of a folder which only this user can enter.
func checkPrivate(name string, info fs.FileInfo) error {
	why := ""
	switch {
	case !info.IsDir():
		why = "is no folder, or a link to one"
	case Owner(info) != os.Geteuid():
		why = "belongs to another user"
	case info.Mode().Perm()&0o077 != 0:
		why = fmt.Sprintf("has the mode %04o, not 0700", info.Mode().Perm())
	default:
		return nil
	}
	return fmt.Errorf("%s: %w: it %s; remove it if it may go, or use a parent folder of your own", name, ErrExposed, why)
}
