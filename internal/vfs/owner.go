package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// ErrExposed: another user owns, can change or can replace what this user is about to use.
var ErrExposed = errors.New("it is open to other users")

// CheckOwner makes sure that a file or folder belongs to this user and that nobody else may write to it; ErrExposed where that is not so.
// info is what Lstat, or Stat of an open file, says of it. Who can write to the folder that it is in may still replace it as a whole.
func CheckOwner(name string, info fs.FileInfo) error {
	switch uid := Owner(info); {
	case uid < 0:
		return fmt.Errorf("%s: %w: its owner is not known", name, ErrExposed)
	case uid != os.Geteuid():
		return fmt.Errorf("%s: %w: it belongs to the user with the id %d, and this process to %d; choose another folder",
			name, ErrExposed, uid, os.Geteuid())
	case OthersWrite(info):
		return fmt.Errorf("%s: %w: it has the mode %04o; to end that: chmod go-w '%s'", name, ErrExposed, info.Mode().Perm(), name)
	}
	return nil
}

// Owner is the user id of a file's owner; -1 where it is not known.
func Owner(info fs.FileInfo) int {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(stat.Uid)
	}
	return -1
}

// Trusted tells whether the owner of a file or folder is this user or root.
func Trusted(info fs.FileInfo) bool {
	uid := Owner(info)
	return uid == 0 || uid == os.Geteuid()
}

// OthersWrite tells whether others than its owner can write to a file or folder. An ACL that lets them shows in the group's bits, which
// are its mask (acl(5)).
func OthersWrite(info fs.FileInfo) bool { return info.Mode().Perm()&0o022 != 0 }

// Replaceable tells whether others than its owner can replace what is in a folder. With the sticky bit only their owners remove and rename
// what is in it.
func Replaceable(info fs.FileInfo) bool {
	return OthersWrite(info) && info.Mode()&fs.ModeSticky == 0
}
