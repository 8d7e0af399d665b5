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

// PrivateDir makes a folder that only this user can enter, or makes sure that one that is there is such a folder; ErrExposed where it is
// not. The parent must exist. A file system without owners, such as one in memory, has nothing to check.
func PrivateDir(fsys FS, name string) error {
	if p, ok := fsys.(interface{ PrivateDir(name string) error }); ok {
		return p.PrivateDir(name)
	}
	if err := fsys.Mkdir(name); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
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

// OpenFolder opens a folder, so that what is in it can be reached whatever becomes of its path. It returns ErrExposed unless the folder
// belongs to this user and nobody else can write to it. It follows links of this user and of root. Another user who can write to a folder
// above can put another of this user's folders in the place of this one, and none of their own.
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

// openFolder opens a folder and returns its FileInfo. If the last part of the path is a link or a pipe, it fails at once.
func openFolder(path string) (*os.Root, fs.FileInfo, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, nil, err
	}
	if !info.IsDir() {
		return nil, nil, pathError("open", path, syscall.ENOTDIR)
	}
	in, err := os.OpenRoot(path + "/") // so that a pipe that has come there is no folder, and not opened
	if err != nil {
		return nil, nil, err
	}
	opened, err := in.Stat(".")
	if err == nil && !os.SameFile(info, opened) {
		err = fmt.Errorf("%s: %w: another folder has taken its place just now", path, ErrExposed)
	}
	if err != nil {
		return nil, nil, errors.Join(err, in.Close())
	}
	return in, opened, nil
}

// ExposedAbove says which folder or link above path another user can change, the nearest one: "" where there is none. Whoever renames a
// part of a path decides what the path leads to.
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

// CheckLinks returns ErrExposed where path leads through a link of another user, who decides what it leads to.
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

// checkFolders returns ErrExposed if another user can change what the folder path leads to. Others may write to it and to the folders
// above it only if these have the sticky bit, as /tmp does.
func checkFolders(path string) error {
	steps, err := walkPath(path)
	for _, s := range steps {
		if why := s.exposed(); why != "" && !s.shut {
			return fmt.Errorf("%s: %w: %s", s.path, ErrExposed, why)
		}
	}
	return err
}

// pathStep is a folder or a link that the kernel passes on the way to a path, or the end of the path.
type pathStep struct {
	path string // without links, but for the step itself
	info fs.FileInfo
	// shut: a folder above it is this user's or root's and lets nobody else in, so that it does not matter what others might do below.
	shut bool
}

// exposed says why another user can change what the step leads to; "": nobody can.
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

// maxLinks is how many links the kernel follows on the way to a path (path_resolution(7)).
const maxLinks = 40

// walkPath returns the steps from / to a path. After a link come the steps to its target. If a step cannot be read, walkPath returns the
// error, and the steps before it.
func walkPath(path string) (steps []pathStep, err error) {
	path, err = filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	info, err := os.Lstat("/")
	if err != nil {
		return nil, err
	}
	chain := []pathStep{{path: "/", info: info}} // the folder that the next name is in is the last one, each in the one before
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

// names are the parts of a path that lead somewhere.
func names(path string) (list []string) {
	for name := range strings.SplitSeq(path, "/") {
		if name != "" && name != "." {
			list = append(list, name)
		}
	}
	return list
}
