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

// maxLinks is how many links the kernel follows on the way to a path (path_resolution(7)).
const maxLinks = 40

// step is a folder or a link that the kernel passes on the way to a path, or the end of the path.
type step struct {
	path string // without links, but for the step itself
	info fs.FileInfo
	// shut: a folder above it is this user's or root's and lets nobody else in, so that it does not matter what others might do below.
	shut bool
}

// exposed says why another user can change what the step leads to; "": nobody can.
func (s step) exposed() string {
	switch {
	case !Trusted(s.info):
		return fmt.Sprintf("it belongs to the user with the id %d, who decides what is below it; choose a folder below your own", Owner(s.info))
	case s.info.IsDir() && Replaceable(s.info):
		return fmt.Sprintf("others can replace what is in it; to end that: chmod go-w '%s'", s.path)
	}
	return ""
}

// way returns the steps from / to a path. After a link come the steps to its target. If a step cannot be read, way returns the error, and
// the steps before it.
func way(path string) (steps []step, err error) {
	path, err = filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	info, err := os.Lstat("/")
	if err != nil {
		return nil, err
	}
	chain := []step{{path: "/", info: info}} // the folder that the next name is in is the last one, each in the one before
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
		next := step{path: filepath.Join(in.path, name), shut: in.shut || Trusted(in.info) && in.info.Mode().Perm()&0o011 == 0}
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

// ExposedAbove says which folder or link above path another user can change, the nearest one: "" where there is none. Whoever renames a
// part of a path decides what the path leads to.
func ExposedAbove(path string) string {
	steps, err := way(path)
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

// checkFolders returns ErrExposed if another user can change what the folder path leads to. Others may write to it and to the folders
// above it only if these have the sticky bit, as /tmp does.
func checkFolders(path string) error {
	steps, err := way(path)
	return cmp.Or(checkSteps(steps), err)
}

func checkSteps(steps []step) error {
	for _, s := range steps {
		if why := s.exposed(); why != "" && !s.shut {
			return fmt.Errorf("%s: %w: %s", s.path, ErrExposed, why)
		}
	}
	return nil
}

// CheckLinks returns ErrExposed where path leads through a link of another user, who decides what it leads to.
func CheckLinks(path string) error {
	steps, err := way(path)
	return cmp.Or(checkLinks(steps), err)
}

func checkLinks(steps []step) error {
	for _, s := range steps {
		if s.info.Mode()&fs.ModeSymlink != 0 && !Trusted(s.info) && !s.shut {
			return fmt.Errorf("%s: %w: it is a link of the user with the id %d", s.path, ErrExposed, Owner(s.info))
		}
	}
	return nil
}

// OpenFolder opens a folder, so that what is in it can be reached whatever becomes of its path. It returns ErrExposed unless the folder
// belongs to this user and nobody else can write to it. It follows links of this user and of root. Another user who can write to a folder
// above can put another of this user's folders in the place of this one, and none of their own.
func OpenFolder(path string) (*os.Root, error) {
	steps, err := way(path)
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
