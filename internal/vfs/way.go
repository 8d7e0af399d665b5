package vfs

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// maxLinks is how many links the kernel follows on the way to a path (path_resolution(7)).
const maxLinks = 40

// step is a folder or a link that the kernel passes on the way to a path, or what the path leads to.
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

// way is the steps from / to a path, each link followed by those to what it leads to. Where it ends with an error they are those so far.
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

// ExposedAbove says which folder or link above path another user can change, the nearest one: "" where there is none. Whoever renames a part
// of a path decides what the path leads to.
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
