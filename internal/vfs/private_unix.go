//go:build unix

package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// PrivateDir does not follow a link that somebody may have put there.
func (OS) PrivateDir(name string) error {
	if err := os.Mkdir(name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := os.Lstat(name)
	if err != nil {
		return err
	}
	owner, known := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir():
		return notPrivate(name, "is no folder, or a link to one")
	case !known || int64(owner.Uid) != int64(os.Geteuid()):
		return notPrivate(name, "belongs to another user")
	case info.Mode().Perm()&0o077 != 0:
		return notPrivate(name, fmt.Sprintf("has the mode %04o, not 0700", info.Mode().Perm()))
	}
	return nil
}
