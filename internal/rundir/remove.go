package rundir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"ddpbatch/internal/vfs"
)

// removedPrefix begins the name of a run that is being removed. No run has such a name, so that a half-removed one is not taken for a run;
// LeftRemovals finds it.
const removedPrefix = ".removed-"

// Remove removes the run directory with everything in it, and the links from job IDs to it. It follows no links. If the process ends in the
// middle, the remains are not taken for a run, and RemoveLeft removes them. The caller must make sure that nobody needs the run.
func (d *Dir) Remove() error {
	whole := d.Whole()
	if !whole.IsOwn() {
		return fmt.Errorf("remove %s: %w: it belongs to another user", whole.path, ErrExposed)
	}
	parent, err := os.OpenRoot(filepath.Dir(whole.path))
	if err != nil {
		return fmt.Errorf("remove %s: %w", whole.path, err)
	}
	defer parent.Close()
	name := filepath.Base(whole.path)
	aside := removedPrefix + name
	if err := parent.Rename(name, aside); err != nil {
		return fmt.Errorf("remove %s: %w", whole.path, err)
	}
	err = errors.Join(removeLinks(parent, name), vfs.OS{}.SyncDir(filepath.Dir(whole.path)), parent.RemoveAll(aside))
	if err != nil {
		return fmt.Errorf("remove %s: %w; what is left of it is %s", whole.path, err, filepath.Join(filepath.Dir(whole.path), aside))
	}
	return nil
}

// removeLinks removes the links next to a run that point to it.
func removeLinks(parent *os.Root, run string) error {
	entries, err := fs.ReadDir(parent.FS(), ".")
	for _, e := range entries {
		if e.Type()&fs.ModeSymlink == 0 {
			continue
		}
		if target, linkErr := parent.Readlink(e.Name()); linkErr == nil && target == run {
			err = errors.Join(err, ignoreGone(parent.Remove(e.Name())))
		}
	}
	return err
}

// LeftRemovals returns the paths of the directories in parent that interrupted removals by the caller have left.
func LeftRemovals(parent string) (paths []string, err error) {
	entries, err := os.ReadDir(parent)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		name, isLeft := strings.CutPrefix(e.Name(), removedPrefix)
		if path := filepath.Join(parent, e.Name()); isLeft && runName().MatchString(name) && ownFolder(path) {
			paths = append(paths, path)
		}
	}
	return paths, err
}

// RemoveLeft removes a directory that LeftRemovals has found, and the links to it.
func RemoveLeft(path string) error {
	parent, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer parent.Close()
	run := strings.TrimPrefix(filepath.Base(path), removedPrefix)
	return errors.Join(removeLinks(parent, run), parent.RemoveAll(filepath.Base(path)))
}

// LastChange returns when something last happened to the run: in its ledger, metrics, checkpoints or newest attempt, or in those of its
// elements. If nothing has, it returns the time of its creation.
func (d *Dir) LastChange() (time.Time, error) {
	whole := d.Whole()
	newest := whole.spec.Created
	elements, err := whole.Elements()
	if err != nil {
		return newest, err
	}
	for _, part := range slices.Concat([]*Dir{whole}, elements) {
		history, err := part.ownLedger()
		if err != nil {
			return newest, err
		}
		times := []time.Time{modTime(part.MetricsPath()), modTime(part.CheckpointsPath())}
		for _, e := range history {
			times = append(times, e.Time)
		}
		if attempt, err := part.NewestAttempt(); err == nil && attempt > 0 {
			sign, err := part.LastSign(attempt)
			if err != nil {
				return newest, err
			}
			times = append(times, sign)
		}
		newest = slices.MaxFunc(append(times, newest), time.Time.Compare)
	}
	return newest, nil
}

// modTime returns when a file, or a directory's list of entries, was last changed, or the zero time if that is not known.
func modTime(path string) time.Time {
	info, err := os.Stat(path)
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

// Size returns how many bytes the run's files take, as far as they can be read. It does not follow links.
func (d *Dir) Size() (bytes int64) {
	root, err := os.OpenRoot(d.Whole().path)
	if err != nil {
		return 0
	}
	defer root.Close()
	_ = fs.WalkDir(root.FS(), ".", func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil // files that cannot be read do not count
		}
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			bytes += info.Size()
		}
		return nil
	})
	return bytes
}
