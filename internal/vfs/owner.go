package vfs

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// ErrExposed means that another user owns, can change or can replace what this user is about to use.
var ErrExposed = errors.New("it is open to other users")

// CheckOwner returns ErrExposed unless a file or directory belongs to this user and nobody else may write to it. info is the result of
// Lstat, or of Stat of an open file. A user who can write to the directory around it may still replace it.
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

// Owner returns the user ID of a file's owner, or -1 if it is not known.
func Owner(info fs.FileInfo) int {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(stat.Uid)
	}
	return -1
}

// Trusted reports whether the owner of a file or directory is this user or root.
func Trusted(info fs.FileInfo) bool {
	uid := Owner(info)
	return uid == 0 || uid == os.Geteuid()
}

// OthersWrite reports whether users other than its owner can write to a file or directory. An ACL that permits it shows in the group's
// bits, which are its mask (acl(5)).
func OthersWrite(info fs.FileInfo) bool { return info.Mode().Perm()&0o022 != 0 }

// Replaceable reports whether users other than its owner can replace entries of a directory. With the sticky bit only the owners of entries
// can remove and rename them.
func Replaceable(info fs.FileInfo) bool {
	return OthersWrite(info) && info.Mode()&fs.ModeSticky == 0
}

// PrivateDir creates a directory that only this user can enter. If it exists and others can enter it, the error is ErrExposed. The parent
// must exist. On a file system without owners, such as one in memory, nothing is checked.
func PrivateDir(fsys FS, name string) error {
	if p, ok := fsys.(interface{ PrivateDir(name string) error }); ok {
		return p.PrivateDir(name)
	}
	if err := fsys.Mkdir(name); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// PrivateDir does not follow a link, which another user may have put there.
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

// checkPrivate returns ErrExposed unless info is that of a directory that only this user can enter.
func checkPrivate(name string, info fs.FileInfo) error {
	why := ""
	switch {
	case !info.IsDir():
		why = "is not a folder, or is a link to one"
	case Owner(info) != os.Geteuid():
		why = "belongs to another user"
	case info.Mode().Perm()&0o077 != 0:
		why = fmt.Sprintf("has the mode %04o, not 0700", info.Mode().Perm())
	default:
		return nil
	}
	return fmt.Errorf("%s: %w: it %s; remove it if it is not needed, or use a parent folder of your own", name, ErrExposed, why)
}

// OpenFolder opens a directory, so that its contents can be reached even if its path changes. It returns ErrExposed unless the directory
// belongs to this user and nobody else can write to it. It follows links of this user and of root. Another user who can write to a
// directory above can replace this one by another directory of this user, but not by one of their own.
func OpenFolder(path string) (*os.Root, error) {
	steps, err := walkPath(path)
	if err := cmp.Or(checkLinks(steps), err); err != nil {
		return nil, err
	}
	last := steps[len(steps)-1]
	in, info, err := openFolder(last.path)
	if err != nil {
		return nil, err
	}
	if err := CheckOwner(last.path, info); err != nil && (!last.shut || Owner(info) != os.Geteuid()) {
		return nil, errors.Join(err, in.Close())
	}
	return in, nil
}

// openFolder opens a directory and returns its FileInfo. If the last element of the path is a link or a pipe, it fails at once.
func openFolder(path string) (*os.Root, fs.FileInfo, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, nil, err
	}
	if !info.IsDir() {
		return nil, nil, pathError("open", path, syscall.ENOTDIR)
	}
	in, err := os.OpenRoot(path + "/") // the slash makes this fail for a pipe, without opening it
	if err != nil {
		return nil, nil, err
	}
	opened, err := in.Stat(".")
	if err == nil && !os.SameFile(info, opened) {
		err = fmt.Errorf("%s: %w: another folder has just replaced it", path, ErrExposed)
	}
	if err != nil {
		return nil, nil, errors.Join(err, in.Close())
	}
	return in, opened, nil
}

// ExposedAbove returns the nearest directory or link above path that another user can change, or "" if there is none. A user who can rename
// a part of a path decides what the path leads to.
func ExposedAbove(path string) string {
	steps, err := walkPath(path)
	if err == nil {
		steps = steps[:len(steps)-1]
	}
	for i := len(steps) - 1; i >= 0; i-- {
		if steps[i].exposed() != "" {
			return steps[i].path
		}
	}
	return ""
}

// CheckLinks returns ErrExposed if path leads through a link of another user, who decides what it leads to.
func CheckLinks(path string) error {
	steps, err := walkPath(path)
	return cmp.Or(checkLinks(steps), err)
}

func checkLinks(steps []pathStep) error {
	for _, s := range steps {
		if s.info.Mode()&fs.ModeSymlink != 0 && !Trusted(s.info) && !s.shut {
			return fmt.Errorf("%s: %w: it is a link of the user with the id %d", s.path, ErrExposed, Owner(s.info))
		}
	}
	return nil
}

// checkFolders returns ErrExposed if another user can change what the directory path leads to. Others may write to it and to the
// directories above it only if these have the sticky bit, as /tmp does.
func checkFolders(path string) error {
	steps, err := walkPath(path)
	for _, s := range steps {
		if why := s.exposed(); why != "" && !s.shut {
			return fmt.Errorf("%s: %w: %s", s.path, ErrExposed, why)
		}
	}
	return err
}

// pathStep is a directory or link on the way to a path, or the end of the path.
type pathStep struct {
	path string // without links, except for the step itself
	info fs.FileInfo
	// shut means that a directory above it belongs to this user or root and lets nobody else in, so that others' permissions below it do
	// not matter.
	shut bool
}

// exposed says why another user can change what the step leads to. It returns "" if nobody can.
func (s pathStep) exposed() string {
	switch {
	case !Trusted(s.info):
		return fmt.Sprintf("it belongs to the user with the id %d, who decides what is below it; choose a folder below your own",
			Owner(s.info))
	case s.info.IsDir() && Replaceable(s.info):
		return fmt.Sprintf("others can replace what is in it; to end that: chmod go-w '%s'", s.path)
	}
	return ""
}

// maxLinks is the number of links that the kernel follows on the way to a path (path_resolution(7)).
const maxLinks = 40

// walkPath returns the steps from / to a path. After a link come the steps to its target. If a step cannot be read, walkPath returns the
// error and the steps before it.
func walkPath(path string) (steps []pathStep, err error) {
	path, err = filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	info, err := os.Lstat("/")
	if err != nil {
		return nil, err
	}
	chain := []pathStep{{path: "/", info: info}} // the directories of the current position; the last one contains the next name
	steps = append(steps, chain...)
	links := 0
	for rest := names(path); len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		if name == ".." {
			chain = chain[:max(len(chain)-1, 1)]
			continue
		}
		in := chain[len(chain)-1]
		next := pathStep{path: filepath.Join(in.path, name), shut: in.shut || Trusted(in.info) && in.info.Mode().Perm()&0o011 == 0}
		if next.info, err = os.Lstat(next.path); err != nil {
			return steps, err
		}
		steps = append(steps, next)
		if next.info.Mode()&fs.ModeSymlink == 0 {
			chain = append(chain, next)
			continue
		}
		if links++; links > maxLinks {
			return steps, pathError("open", path, syscall.ELOOP)
		}
		target, err := os.Readlink(next.path)
		if err != nil {
			return steps, err
		}
		if filepath.IsAbs(target) {
			chain = chain[:1]
		}
		rest = append(names(target), rest...)
	}
	return steps, nil
}

// names returns the elements of a path without empty ones and dots.
func names(path string) (list []string) {
	for name := range strings.SplitSeq(path, "/") {
		if name != "" && name != "." {
			list = append(list, name)
		}
	}
	return list
}
