//go:build unix

package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// ErrExposed: a file or folder belongs to another user, or others may write to it.
var ErrExposed = errors.New("others may change it")

// CheckOwner makes sure that a file or folder belongs to this user and that nobody else may write to it; ErrExposed where that is not so.
// info is what Lstat, or Stat of an open file, says of it. An ACL that lets others write shows in the group's bits, which are its mask
// (acl(5)). Who can write to the folder that it is in may still replace it as a whole.
func CheckOwner(name string, info fs.FileInfo) error {
	owner, known := info.Sys().(*syscall.Stat_t)
	switch {
	case !known:
		return fmt.Errorf("%s: %w: its owner is not known", name, ErrExposed)
	case int64(owner.Uid) != int64(os.Geteuid()):
		return fmt.Errorf("%s: %w: it belongs to the user with the id %d, and this process to %d; choose another folder",
			name, ErrExposed, owner.Uid, os.Geteuid())
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("%s: %w: it has the mode %04o; to end that: chmod go-w '%s'", name, ErrExposed, info.Mode().Perm(), name)
	}
	return nil
}
