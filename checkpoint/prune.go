package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"ddpbatch/checkpoint/internal/manifest"
	"ddpbatch/internal/vfs"
)

// Prune removes what Plan does not keep, and what an interrupted removal has left, and returns
// the plan. The fence is asked before each removal. After an error some may be removed; no
// checkpoint is ever half there.
func (d *Dir) Prune(ctx context.Context, p Policy) ([]Decision, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	d.changing.Lock()
	defer d.changing.Unlock()
	verdicts, err := d.prune(ctx, p, "")
	if err != nil {
		return nil, fmt.Errorf("remove old checkpoints in %s: %w", d.path, classify(err))
	}
	return decisions(verdicts), nil
}

// prune applies a policy, which keeps the folder saved in any case, and sweeps. d.changing is
// held.
func (d *Dir) prune(ctx context.Context, p Policy, saved string) ([]*verdict, error) {
	v, err := d.look(ctx, saved != "")
	if err != nil {
		return nil, err
	}
	verdicts, err := d.surePlan(ctx, v, p, saved)
	if err != nil {
		return nil, err
	}
	d.logPerhaps(verdicts)
	for _, deltas := range []bool{true, false} { // a base only after what is made from it
		for _, one := range verdicts {
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
	return verdicts, d.sweep(ctx, v, saved != "")
}

// surePlan is a plan that removes nothing because something else seemed whole, or broken, at a quick
// look.
func (d *Dir) surePlan(ctx context.Context, v *view, p Policy, saved string) ([]*verdict, error) {
	for {
		if err := d.lookAgain(ctx, v); err != nil {
			return nil, err
		}
		verdicts := d.plan(v, p, saved)
		if !slices.ContainsFunc(verdicts, func(one *verdict) bool { return len(one.keep) == 0 }) {
			return verdicts, nil
		}
		unsure := slices.DeleteFunc(slices.Clone(v.entries), func(e *entry) bool {
			return e.checked || e.m == nil || e.m.Run != d.opt.Run || e.info.State != StateCommitted && e.info.State != StateSuperseded
		})
		if len(unsure) == 0 {
			return verdicts, nil
		}
		if err := d.checkShards(ctx, unsure); err != nil {
			return nil, err
		}
	}
}

// removeCheckpoint takes a committed checkpoint out of the world, the commit record first, so
// that a crash leaves either a whole checkpoint or none. Who pins it makes the pin and then looks
// for the commit record; so one of the two sees what the other has done.
func (d *Dir) removeCheckpoint(one *verdict) error {
	path := one.info.Path
	info, err := d.fs.Stat(filepath.Join(path, manifest.Name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // somebody else has begun
	}
	if err != nil {
		return err
	}
	if err := d.takeOut(one.entry, manifest.Name, info.Size()); err != nil {
		return err
	}
	if err := d.fs.SyncDir(path); err != nil {
		return err
	}
	if one.files, err = d.list(path); err != nil {
		return err
	}
	if pinned(one.files) {
		one.reason("pinned meanwhile")
		return d.putBack(one.entry, info.Size())
	}
	d.known.forget(one.name)
	if err := d.removeData(one.entry, one.m); err != nil {
		return err
	}
	one.files = nil
	return nil
}

func pinned(files []string) bool {
	return slices.ContainsFunc(files, func(name string) bool { _, pin := manifest.ParsePin(name); return pin })
}

// putBack makes a checkpoint again of one whose removal has only begun.
func (d *Dir) putBack(e *entry, size int64) error {
	from, to := filepath.Join(e.info.Path, manifest.DeletingName), filepath.Join(e.info.Path, manifest.Name)
	if err := vfs.Rename(d.fs, from, to, size); err != nil {
		return err
	}
	return d.fs.SyncDir(e.info.Path)
}

// removeData removes the files of a checkpoint whose manifest is named as being removed, then
// that, and the folder, unless somebody has put something else into it.
func (d *Dir) removeData(e *entry, m *manifest.Manifest) error {
	for _, name := range e.files {
		attempt, own := manifest.OwnFile(name, d.run)
		if !names(m, name) && !(own && attempt <= m.Attempt) {
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

// names says whether a file is a shard of the checkpoint.
func names(m *manifest.Manifest, file string) bool {
	return m != nil && slices.ContainsFunc(m.Shards, func(s manifest.Shard) bool { return s.File == file })
}
