package checkpoint

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"sync/atomic"

	"ddpbatch/checkpoint/internal/manifest"
)

// inspect looks at one folder; nil where there is none. What cannot be read is an entry, too: one
// folder that is not readable must not hide the others.
func (d *Dir) inspect(ctx context.Context, name string) *entry {
	path := filepath.Join(d.path, name)
	folder, _ := manifest.ParseFolder(name)
	e := &entry{name: name, info: Info{Step: folder.Step, Path: path, State: StatePartial, BaseStep: -1}}
	var err error
	e.files, err = d.list(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && slices.Contains(e.files, manifest.Name) {
		err = d.inspectManifest(ctx, e)
	}
	if err != nil {
		d.log.Warn("checkpoint cannot be read: it is left as it is", "path", path, "err", classify(err))
		e.info.State, e.info.Committed = StateUnreadable, false
	}
	if folder.Broken {
		e.info.State, e.info.Committed = StateBroken, false
	}
	for _, file := range e.files {
		if label, ok := manifest.ParsePin(file); ok {
			e.info.Pinned = append(e.info.Pinned, label)
		}
	}
	return e
}

// inspectManifest fills in what the manifest of an entry says.
func (d *Dir) inspectManifest(ctx context.Context, e *entry) error {
	path := filepath.Join(e.info.Path, manifest.Name)
	var data []byte
	err := again(func() (err error) { data, err = d.readFile(path, manifest.MaxBytes); return err })
	var c *Checkpoint
	if err == nil {
		c, err = d.parse(e.name, data)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return d.inspectGone(e, path)
	case errors.Is(err, ErrFormatTooNew):
		e.info.State = StateNewer
		return nil
	case errors.Is(err, ErrCorrupt):
		e.info.State = StateBroken
		return nil
	case err != nil:
		return err
	}
	e.m, e.crc = c.m, manifest.CRC(data)
	e.info = d.describe(e.name, c.m, int64(len(data)))
	var broken atomic.Bool
	err = inParallel(ctx, opening, c.shardNumbers(), func(_ context.Context, i int) error {
		whole, err := d.inspectShard(e, c, i)
		if !whole {
			broken.Store(true)
		}
		return err
	})
	if broken.Load() {
		e.info.State, e.info.Committed = StateBroken, false
	}
	return err
}

// inspectGone is about a manifest that the folder has listed, and that is said not to be there: it
// was removed in between, or it was not.
func (d *Dir) inspectGone(e *entry, path string) (err error) {
	e.files, err = d.list(e.info.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && slices.Contains(e.files, manifest.Name) {
		err = unseen(path)
	}
	return err
}

// inspectShard says whether a shard is there with its size. A network file system may answer both
// from what it remembers: so what is wrong is looked at in another way, too.
func (d *Dir) inspectShard(e *entry, c *Checkpoint, i int) (whole bool, err error) {
	path, want := c.shardPath(i), c.m.Shards[i].Size
	info, err := d.fs.Stat(path)
	if err == nil && info.Size() == want {
		return true, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	f, opening := d.fs.Open(path)
	switch {
	case errors.Is(opening, fs.ErrNotExist) && slices.Contains(e.files, c.m.Shards[i].File):
		return false, unseen(path)
	case errors.Is(opening, fs.ErrNotExist):
		return false, nil
	case opening != nil:
		return false, opening
	}
	defer f.Close()
	info, err = f.Stat()
	return err == nil && info.Size() == want, err
}
