package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"ddpbatch/checkpoint/internal/manifest"
	"ddpbatch/internal/vfs"
)

// Prune removes what Plan does not keep, and what interrupted removals have left, and returns
// the plan. It asks the fence before each removal. After an error some checkpoints may have been removed;
// each is either whole or gone.
func (d *Dir) Prune(ctx context.Context, p Policy) ([]Decision, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	d.changing.Lock()
	defer d.changing.Unlock()
	retentions, err := d.prune(ctx, p, "")
	if err != nil {
		return nil, fmt.Errorf("remove old checkpoints in %s: %w", d.path, classify(err))
	}
	return decisionsOf(retentions), nil
}

// prune applies a policy and sweeps. It keeps the folder saved in any case. d.changing is
// held.
func (d *Dir) prune(ctx context.Context, p Policy, saved string) ([]*retention, error) {
	v, err := d.look(ctx, saved != "")
	if err != nil {
		return nil, err
	}
	retentions, err := d.applyPolicySurely(ctx, v, p, saved)
	if err != nil {
		return nil, err
	}
	d.logPossibleBases(retentions)
	for _, deltas := range []bool{true, false} { // a base goes after its deltas
		for _, one := range retentions {
			if len(one.keep) > 0 || (one.m.Base != nil) != deltas {
				continue
			}
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			if err := d.removeCheckpoint(one); err != nil {
				return nil, err
			}
		}
	}
	return retentions, d.sweep(ctx, v, saved != "")
}

// applyPolicySurely is applyPolicy, but before it lets anything go it checks again the checkpoints that a quick look found whole or broken.
func (d *Dir) applyPolicySurely(ctx context.Context, v *view, p Policy, saved string) ([]*retention, error) {
	for {
		if err := d.lookAgain(ctx, v); err != nil {
			return nil, err
		}
		retentions := d.applyPolicy(v, p, saved)
		if !slices.ContainsFunc(retentions, func(one *retention) bool { return len(one.keep) == 0 }) {
			return retentions, nil
		}
		unsure := slices.DeleteFunc(slices.Clone(v.folders), func(e *folderInfo) bool {
			return e.checked || e.m == nil || e.m.Run != d.opt.Run || e.info.State != StateCommitted && e.info.State != StateSuperseded
		})
		if len(unsure) == 0 {
			return retentions, nil
		}
		if err := d.checkShards(ctx, unsure); err != nil {
			return nil, err
		}
	}
}

// removeCheckpoint removes a committed checkpoint. It renames the commit record first, so
// that a crash leaves either a whole checkpoint or none. Pin creates the pin and then looks for the commit
// record, so one of the two sees what the other has done.
func (d *Dir) removeCheckpoint(one *retention) error {
	path := one.info.Path
	info, err := d.fs.Stat(filepath.Join(path, manifest.Name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // another process is removing it
	}
	if err != nil {
		return err
	}
	if err := d.takeOut(one.folderInfo, manifest.Name, info.Size()); err != nil {
		return err
	}
	if err := d.fs.SyncDir(path); err != nil {
		return err
	}
	if one.files, err = d.list(path); err != nil {
		return err
	}
	if hasPin(one.files) {
		one.reason("pinned meanwhile")
		return d.putBack(one.folderInfo, info.Size())
	}
	d.cache.forget(one.name)
	if err := d.removeData(one.folderInfo, one.m); err != nil {
		return err
	}
	one.files = nil
	return nil
}

func hasPin(files []string) bool {
	return slices.ContainsFunc(files, func(name string) bool { _, pin := manifest.ParsePin(name); return pin })
}

// putBack restores a checkpoint whose commit record alone was renamed.
func (d *Dir) putBack(e *folderInfo, size int64) error {
	from, to := filepath.Join(e.info.Path, manifest.DeletingName), filepath.Join(e.info.Path, manifest.Name)
	if err := vfs.Rename(d.fs, from, to, size); err != nil {
		return err
	}
	return d.fs.SyncDir(e.info.Path)
}

// removeData removes the files of a checkpoint whose manifest has been renamed, then
// the manifest, and then the folder, unless somebody has put something else into it.
func (d *Dir) removeData(e *folderInfo, m *manifest.Manifest) error {
	for _, name := range e.files {
		attempt, own := manifest.OwnFile(name, d.run)
		if !hasShard(m, name) && !(own && attempt <= m.Attempt) {
			continue
		}
		if err := d.remove(filepath.Join(e.info.Path, name)); err != nil {
			return err
		}
	}
	if err := d.remove(filepath.Join(e.info.Path, manifest.DeletingName)); err != nil {
		return err
	}
	if err := d.removeDir(e.info.Path); err != nil {
		return err
	}
	return d.fs.SyncDir(d.path)
}

// hasShard reports whether a file is a shard of the checkpoint.
func hasShard(m *manifest.Manifest, file string) bool {
	return m != nil && slices.ContainsFunc(m.Shards, func(s manifest.Shard) bool { return s.File == file })
}

// emptyAge is how old an empty folder must be to count as left behind: a writer puts its
// first file into a new folder at once. An attempt that has just saved does not need this rule: it knows
// its own saves, and while its fence is good, no newer attempt can have made the folder.
const emptyAge = time.Hour

// sweep removes what dead attempts of this run have left: files of saves that were never
// committed, interrupted removals, and records and probes that were never finished. saver
// says that this process is the one that saves for its attempt.
func (d *Dir) sweep(ctx context.Context, v *view, saver bool) error {
	for _, name := range v.files {
		if !d.leftByEarlierAttempt(name, nil) {
			continue
		}
		if err := d.remove(filepath.Join(d.path, name)); err != nil {
			return err
		}
	}
	for _, e := range v.folders {
		if len(e.files) == 0 && e.m != nil || d.isWriting(e.name) || e.info.State == StateUnreadable {
			continue // just removed, in progress, or unreadable
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

// leftByEarlierAttempt reports whether a file is from an earlier attempt of this run, and not part of m.
func (d *Dir) leftByEarlierAttempt(name string, m *manifest.Manifest) bool {
	attempt, own := manifest.OwnFile(name, d.run)
	return own && attempt < d.opt.Attempt && !hasShard(m, name)
}

// sweepFolder removes what earlier attempts have left, and returns the number of other files.
func (d *Dir) sweepFolder(e *folderInfo) (others int, err error) {
	for _, name := range e.files {
		// In a committed checkpoint, a manifest under the name of a removal is what a crash left of the rename.
		if !d.leftByEarlierAttempt(name, e.m) && !(e.m != nil && name == manifest.DeletingName && d.mayRemove(e.m.Attempt)) {
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
// was interrupted. It removes the folder, too, unless there is something else in it.
func (d *Dir) sweepPartial(ctx context.Context, e *folderInfo, emptyToo bool) error {
	// Look again before removing anything: the client may have returned an old list.
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

// leftBehind reports whether no process will put anything into an empty folder any more.
func (d *Dir) leftBehind(e *folderInfo) (bool, error) {
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

// finishRemoval completes a removal if this attempt may remove the checkpoint. If the checkpoint
// has been pinned and is whole, it is put back.
func (d *Dir) finishRemoval(e *folderInfo) error {
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
		return nil // its run is unknown, or not this one
	}
	if !hasPin(e.files) {
		err := d.takeOut(e, manifest.DeletingName, int64(len(data)))
		switch {
		case err == nil:
			return d.removeData(e, m)
		case errors.Is(err, fs.ErrNotExist): // another process has put it back, or completed the removal
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
