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

// Index is the folder with the links; empty: there is no index.
type Index string

// Folder is a user's index, by the variables that lookup finds: ddpbatch/runs below XDG_STATE_HOME where that is an absolute path (the XDG
// specification has others passed over), else below .local/state of HOME; empty without either.
func Folder(lookup func(string) (string, bool)) Index {
	if state, _ := lookup("XDG_STATE_HOME"); filepath.IsAbs(state) {
		return Index(filepath.Join(state, "ddpbatch", "runs"))
	}
	if home, _ := lookup("HOME"); filepath.IsAbs(home) {
		return Index(filepath.Join(home, ".local", "state", "ddpbatch", "runs"))
	}
	return ""
}

// Add has the index lead to a run. A run of the same name elsewhere, which only a copy has, is replaced.
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

// kept is for how long the index leads to a run whose folder is gone together with the one around it: that may be of a file system which
// this machine does not have, or not now.
const kept = 30 * 24 * time.Hour

// Runs opens the runs of the index, in no order, and drops the links to runs that are gone. Runs that cannot be opened are left out.
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

// open opens the run that a link leads to; nil: it cannot be opened.
func open(link string, now time.Time) *rundir.Dir {
	path, err := os.Readlink(link)
	if err != nil || !filepath.IsAbs(path) {
		return nil // nothing of ours
	}
	run, err := rundir.Open(path)
	if errors.Is(err, fs.ErrNotExist) && isGone(link, path, now) {
		_ = os.Remove(link) // at the next look, where it fails
	}
	if err != nil {
		return nil
	}
	return run
}

// isGone reports whether the run at path, which is not there, will not be there again.
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
