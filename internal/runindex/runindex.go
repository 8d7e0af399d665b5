package runindex

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"ddpbatch/internal/each"
	"ddpbatch/internal/rundir"
)

// Index is the path of the directory with the links. If it is empty there is no index.
type Index string

// Folder returns a user's index according to the variables that lookup finds: ddpbatch/runs below XDG_STATE_HOME if that is an absolute
// path (the XDG specification says to ignore others), or else below .local/state of HOME. It returns "" if neither is set.
func Folder(lookup func(string) (string, bool)) Index {
	if state, _ := lookup("XDG_STATE_HOME"); filepath.IsAbs(state) {
		return Index(filepath.Join(state, "ddpbatch", "runs"))
	}
	if home, _ := lookup("HOME"); filepath.IsAbs(home) {
		return Index(filepath.Join(home, ".local", "state", "ddpbatch", "runs"))
	}
	return ""
}

// Add adds a run to the index. It replaces a run of the same name elsewhere, since only copies of a run have the same name.
func (x Index) Add(run *rundir.Dir) error {
	if x == "" {
		return nil
	}
	if err := x.add(run.Whole().Path()); err != nil {
		return fmt.Errorf("add the run to your index of runs: %w", err)
	}
	return nil
}

func (x Index) add(path string) error {
	if err := os.MkdirAll(string(x), 0o700); err != nil {
		return err
	}
	link := filepath.Join(string(x), filepath.Base(path))
	err := os.Symlink(path, link)
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	if target, err := os.Readlink(link); err == nil && target == path {
		return nil
	}
	if err := os.Remove(link); err != nil {
		return err
	}
	return os.Symlink(path, link)
}

// kept is how long the index keeps a run whose directory has disappeared together with its parent directory: the file system may not be
// mounted on this machine, or not now.
const kept = 30 * 24 * time.Hour

// Runs opens the runs of the index, in no particular order, and removes the links to runs that no longer exist. Runs that cannot be opened
// are left out.
func (x Index) Runs(now time.Time) (runs []*rundir.Dir, err error) {
	if x == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(string(x))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read your index of runs: %w", err)
	}
	runs = make([]*rundir.Dir, len(entries))
	each.Index(len(entries), func(i int) { runs[i] = open(filepath.Join(string(x), entries[i].Name()), now) })
	return slices.DeleteFunc(runs, func(run *rundir.Dir) bool { return run == nil }), nil
}

// open opens the run that a link points to. It returns nil if that cannot be opened.
func open(link string, now time.Time) *rundir.Dir {
	path, err := os.Readlink(link)
	if err != nil || !filepath.IsAbs(path) {
		return nil // not one of our links
	}
	run, err := rundir.Open(path)
	if errors.Is(err, fs.ErrNotExist) && isGone(link, path, now) {
		_ = os.Remove(link) // if this fails, the next look tries again
	}
	if err != nil {
		return nil
	}
	return run
}

// isGone reports whether the run at path, which does not exist, will not reappear.
func isGone(link, path string, now time.Time) bool {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	if _, err := os.Stat(filepath.Dir(path)); err == nil {
		return true
	}
	made, err := os.Lstat(link)
	return err == nil && now.Sub(made.ModTime()) > kept
}
