package checkpoint

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"

	"ddpbatch/checkpoint/internal/manifest"
	"ddpbatch/internal/vfs"
)

// listsShards says whether the folder of an entry that is committed lists all its shards.
func (e *entry) listsShards() bool {
	if e.m == nil {
		return true
	}
	there := make(map[string]bool, len(e.files))
	for _, name := range e.files {
		there[name] = true
	}
	return !slices.ContainsFunc(e.m.Shards, func(s manifest.Shard) bool { return !there[s.File] })
}

// shardOf is a shard to be looked at.
type shardOf struct {
	*entry
	shard manifest.Shard
}

// checkShards looks at the sizes of the shards of entries that seem whole.
func (d *Dir) checkShards(ctx context.Context, entries []*entry) error {
	var list []shardOf
	var looked []*entry
	for _, e := range entries {
		if e.m == nil || e.info.State != StateCommitted && e.info.State != StateSuperseded {
			continue
		}
		looked = append(looked, e)
		for _, s := range e.m.Shards {
			list = append(list, shardOf{e, s})
		}
	}
	var mu sync.Mutex
	err := inParallel(ctx, opening, list, func(ctx context.Context, s shardOf) error {
		whole, err := d.inspectShard(s)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err != nil && s.err == nil:
			d.unreadable(ctx, s.entry, err)
		case !whole && s.err == nil:
			s.info.State, s.info.Committed = StateBroken, false
		}
		return ctx.Err()
	})
	if err != nil {
		return err
	}
	for _, e := range looked {
		e.checked = true
		if e.info.State == StateCommitted || e.info.State == StateSuperseded {
			d.known.markWhole(e.name, e.crc)
		}
	}
	return nil
}

// inspectShard says whether a shard is there with its size. A network file system may answer both
// from what it remembers: so what is wrong is looked at in another way, too.
func (d *Dir) inspectShard(s shardOf) (whole bool, err error) {
	path, want := filepath.Join(s.info.Path, s.shard.File), s.shard.Size
	info, err := d.fs.Stat(path)
	if err == nil && info.Size() == want {
		return true, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	f, err := d.fs.Open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, d.absent(path)
	case errors.Is(err, vfs.ErrNotRegular):
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	info, err = f.Stat()
	return err == nil && info.Size() == want, err
}
