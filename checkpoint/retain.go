package checkpoint

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"ddpbatch/checkpoint/internal/manifest"
)

// emptyAge is how old an empty folder must be before it is taken for left behind: a writer puts its
// first file into a new one at once. An attempt that has just saved needs no such guess: it knows of
// its own saves, and as long as its fence is good, what it sees was not made by a newer one.
const emptyAge = time.Hour

// retain tidies up after the checkpoint in a folder has been committed.
func (d *Dir) retain(ctx context.Context, saved string) error {
	_, err := d.prune(context.WithoutCancel(ctx), d.opt.Keep, saved)
	return err
}

// sweep removes what dead attempts of this run have left: files of saves that were never
// committed, removals that were interrupted, records and probes that were never finished. saver
// says that this process is the one that saves for its attempt.
func (d *Dir) sweep(ctx context.Context, v *view, saver bool) error {
	for _, name := range v.files {
		if !d.stale(name, nil) {
			continue
		}
		if err := d.remove(filepath.Join(d.path, name)); err != nil {
			return err
		}
	}
	for _, e := range v.entries {
		if len(e.files) == 0 && e.m != nil || d.isWriting(e.name) || e.info.State == StateUnreadable {
			continue // just removed, in progress, or not known
		}
		var err error
		switch {
		case e.info.State == StatePartial:
			err = d.sweepPartial(ctx, e, saver && d.opt.Attempt > 0)
		case e.m != nil && e.m.Run == d.opt.Run:
			_, err = d.sweepFolder(e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// stale says whether a file is an earlier attempt's of this run, and not part of m.
func (d *Dir) stale(name string, m *manifest.Manifest) bool {
	attempt, own := manifest.OwnFile(name, d.run)
	return own && attempt < d.opt.Attempt && !names(m, name)
}

// sweepFolder removes stale files, and counts the others.
func (d *Dir) sweepFolder(e *entry) (others int, err error) {
	for _, name := range e.files {
		// Below a committed manifest, one on its way out is what a crash left of the rename.
		if !d.stale(name, e.m) && !(e.m != nil && name == manifest.DeletingName && d.mayRemove(e.m.Attempt)) {
			others++
			continue
		}
		if err := d.remove(filepath.Join(e.info.Path, name)); err != nil {
			return others, err
		}
	}
	return others, nil
}

// sweepPartial removes what is left of a checkpoint that was never committed, or whose removal
// was interrupted. The folder goes too, unless there is something else in it.
func (d *Dir) sweepPartial(ctx context.Context, e *entry, emptyToo bool) error {
	// One look is not enough to remove anything; and a client may remember an old list.
	if e = d.inspect(ctx, e.name, false); e == nil || e.info.State != StatePartial {
		return nil
	}
	if _, err := d.fs.Stat(filepath.Join(e.info.Path, manifest.Name)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if slices.Contains(e.files, manifest.DeletingName) {
		return d.finishRemoval(e)
	}
	if len(e.files) == 0 && !emptyToo {
		if left, err := d.leftBehind(e); err != nil || !left {
			return err
		}
	}
	if others, err := d.sweepFolder(e); err != nil || others > 0 {
		return err
	}
	if err := d.removeDir(e.info.Path); err != nil {
		return err
	}
	return d.fs.SyncDir(d.path)
}

// leftBehind says whether nobody will put anything into an empty folder any more.
func (d *Dir) leftBehind(e *entry) (bool, error) {
	if folder, _ := manifest.ParseFolder(e.name); folder.Fresh && folder.Attempt < d.opt.Attempt {
		return true, nil
	}
	info, err := d.fs.Stat(e.info.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil || info.ModTime().Unix() <= 0 { // some file systems keep no times
		return false, err
	}
	return d.now().Sub(info.ModTime()) >= emptyAge, nil
}

// finishRemoval goes on with a removal, if it is of a checkpoint that this attempt may remove. One
// that has been pinned is put back, if it is whole.
func (d *Dir) finishRemoval(e *entry) error {
	path := filepath.Join(e.info.Path, manifest.DeletingName)
	data, err := d.readFile(path, manifest.MaxBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil && !errors.Is(err, ErrCorrupt) {
		return err
	}
	m, bad := manifest.Parse(data)
	if err != nil || bad != nil || m.Run != d.opt.Run || !d.mayRemove(m.Attempt) {
		return nil // whose it is is not known, or not ours
	}
	if !pinned(e.files) {
		err := d.takeOut(e, manifest.DeletingName, int64(len(data)))
		switch {
		case err == nil:
			return d.removeData(e, m)
		case errors.Is(err, fs.ErrNotExist): // somebody has put it back, or has gone on
			return nil
		}
		return err
	}
	if !hasShards(m, e.files) {
		return nil
	}
	if err := d.fence(); err != nil {
		return err
	}
	return d.putBack(e, int64(len(data)))
}
