package checkpoint

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
)

// retain tidies up after m has been committed: what its own step held before, checkpoints beyond
// the last KeepLast and the pinned one, and leftovers of dead attempts at earlier steps. Later steps, which only a
// history that was given up can have, are left alone until they are saved again.
func (d *Dir) retain(m *manifest) error {
	if err := d.sweep(m.Step, m, m.Attempt); err != nil {
		return err
	}
	steps, err := d.steps()
	if err != nil {
		return err
	}
	kept := 1 // m itself
	for _, step := range slices.Backward(steps) {
		if step >= m.Step {
			continue
		}
		info, old, err := d.inspect(step)
		if err != nil {
			return err
		}
		switch {
		case info.State == StatePartial:
			err = d.sweepPartial(step)
		case old == nil || old.Run != d.opt.Run:
			// Unreadable, newer, or copied from another run: not ours to remove.
		case d.isPinned(step):
			err = d.sweep(step, old, d.opt.Attempt-1)
		case d.opt.KeepLast > 0 && kept >= d.opt.KeepLast:
			err = d.removeStep(old)
		default:
			// One that is known to be bad stays for now, but takes no good one's place.
			if info.Committed && !d.isBad(step) {
				kept++
			}
			err = d.sweep(step, old, d.opt.Attempt-1)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// sweep removes from the folder of a step what this package wrote there, up to an attempt, and
// the manifest (nil: none) does not name.
func (d *Dir) sweep(step int64, m *manifest, upTo int) error {
	dir := d.stepPath(step)
	entries, err := d.fs.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		attempt, own := ownAttempt(entry.Name(), d.run)
		stale := own && attempt <= upTo && !m.names(entry.Name())
		// Below a committed manifest, one on its way out is of an earlier save of the step.
		stale = stale || m != nil && entry.Name() == deletingName
		if !stale || entry.IsDir() {
			continue
		}
		if err := d.remove(filepath.Join(dir, entry.Name())); err != nil {
			return err
		}
	}
	return nil
}

// names says whether a file is a shard of the checkpoint.
func (m *manifest) names(file string) bool {
	return m != nil && slices.ContainsFunc(m.Shards, func(s shardRecord) bool { return s.File == file })
}

// sweepPartial removes what dead attempts left at a step that was never committed, or whose
// removal was interrupted. The folder goes too, unless somebody else has put something into it.
func (d *Dir) sweepPartial(step int64) error {
	upTo := d.opt.Attempt - 1
	deleting := filepath.Join(d.stepPath(step), deletingName)
	_, err := d.fs.Stat(deleting)
	switch {
	case err == nil:
		upTo = d.opt.Attempt // this attempt may have begun the removal
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := d.sweep(step, nil, upTo); err != nil {
		return err
	}
	return d.removeFolder(step)
}

// removeStep takes a committed checkpoint out of the world, the commit record first, so that a
// crash leaves either a whole checkpoint or none.
func (d *Dir) removeStep(m *manifest) error {
	dir := d.stepPath(m.Step)
	if err := d.fence(); err != nil {
		return err
	}
	if err := d.fs.Rename(filepath.Join(dir, manifestName), filepath.Join(dir, deletingName)); err != nil {
		return err
	}
	if err := d.fs.SyncDir(dir); err != nil {
		return err
	}
	if err := d.sweep(m.Step, nil, d.opt.Attempt); err != nil {
		return err
	}
	return d.removeFolder(m.Step)
}

// removeFolder removes the folder of a step whose shards are gone.
func (d *Dir) removeFolder(step int64) error {
	if err := d.remove(filepath.Join(d.stepPath(step), deletingName)); err != nil {
		return err
	}
	if err := d.removeStepDir(step); err != nil {
		return err
	}
	return d.fs.SyncDir(d.path)
}
