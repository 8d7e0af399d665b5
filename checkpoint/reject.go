package checkpoint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"ddpbatch/checkpoint/internal/manifest"
	"ddpbatch/internal/vfs"
)

// errSound is what reject returns for a checkpoint that is good when it is read again.
var errSound = errors.New("the checkpoint is good when it is read again")

// Reject takes a checkpoint that was found corrupt out of use. It reads all of it again, through
// newly opened files. If lengths or checksums are wrong again, it renames the folder to NAME.broken, under
// the fence, and returns nil. From then on FindLatest of this Dir skips the checkpoint.
//
// In three cases Reject returns nil without renaming c: a file is missing, for which another client's
// view may be the cause; c is another run's; or c is a delta and its base is corrupt, which is rejected
// instead. Otherwise an error means that c is good, or could not be read or renamed. Only an attempt may
// call Reject (Options.Attempt).
func (d *Dir) Reject(ctx context.Context, c *Checkpoint) error {
	if err := d.reject(ctx, c); err != nil {
		return fmt.Errorf("reject checkpoint of step %d in %s: %w", c.Step(), c.path(), classify(err))
	}
	return nil
}

func (d *Dir) reject(ctx context.Context, c *Checkpoint) error {
	own := c.m.Run == d.opt.Run
	if d.opt.Attempt < 1 || own && c.m.Attempt > d.opt.Attempt {
		return errors.New("only an attempt may reject a checkpoint, and not one of a later attempt")
	}
	why := d.readAgain(ctx, c)
	switch {
	case why == nil:
		d.markSound(c.id())
		return errSound
	case !errors.Is(why, ErrCorrupt):
		return why
	}
	theirs, err := d.rejectBase(ctx, c)
	if err != nil {
		return err
	}
	bad, _ := errors.AsType[*CorruptError](why)
	switch {
	case theirs:
		d.log.Warn("base of a checkpoint is corrupt: skipping both", "path", c.path(), "base", c.m.Base.Folder, "err", why)
	case bad != nil && bad.missing:
		d.log.Warn("checkpoint is not whole: skipping it, and leaving it as it is", "path", c.path(), "err", why)
	case !own:
		d.log.Warn("checkpoint of another run is corrupt: skipping it, and leaving it as it is", "path", c.path(),
			"run", c.m.Run, "err", why)
	default:
		if err := d.setAside(c.folder, why); err != nil {
			d.markBad(c.id(), nil)
			return err
		}
	}
	d.markBad(c.id(), why)
	return nil
}

// readAgain reads all of a checkpoint through newly opened files.
func (d *Dir) readAgain(ctx context.Context, c *Checkpoint) error {
	again, err := d.openFolder(ctx, c.folder, false)
	if err != nil {
		return err
	}
	if err = again.check(ctx); err == nil { // finds a shard that is cut short without reading data
		err = again.verify(ctx)
	}
	again.Close() // it was only read from
	return err
}

// rejectBase reports whether the base of a corrupt delta is the cause, and rejects the base if so.
func (d *Dir) rejectBase(ctx context.Context, c *Checkpoint) (theirs bool, err error) {
	if c.m.Base == nil {
		return false, nil
	}
	base, err := c.openBase(ctx)
	if err == nil {
		err = d.reject(ctx, base)
	}
	switch {
	case errors.Is(err, errSound):
		return false, nil
	case errors.Is(err, ErrCorrupt): // the base is missing, or its manifest is damaged: nothing to rename
		return true, nil
	}
	return err == nil, err
}

// setAside renames a folder to NAME.broken.
func (d *Dir) setAside(folder string, why error) error {
	d.changing.Lock()
	defer d.changing.Unlock()
	path, name := filepath.Join(d.path, folder), manifest.BrokenFolder(folder)
	if _, taken := d.fs.Stat(filepath.Join(d.path, name)); !errors.Is(taken, fs.ErrNotExist) {
		name = manifest.BrokenFolderAgain(folder, d.nonce())
	}
	if err := d.fence(); err != nil {
		return err
	}
	if err := vfs.Rename(d.fs, path, filepath.Join(d.path, name), -1); err != nil {
		return err
	}
	d.cache.forget(folder)
	d.log.Warn("checkpoint is corrupt: renamed, to be looked at", "path", path, "to", name, "err", why)
	return d.fs.SyncDir(d.path)
}

// saveID distinguishes a save from a later one whose folder has the same name.
type saveID struct {
	folder string
	crc    manifest.Checksum // of the manifest's bytes
}

func (c *Checkpoint) id() saveID { return saveID{c.folder, manifest.CRC(c.data)} }

func (e *folderInfo) id() saveID { return saveID{e.name, e.crc} }

// markBad records that a read found a save corrupt, or, with why, that two reads did: then it is rejected.
func (d *Dir) markBad(id saveID, why error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.bad[id] = cmp.Or(why, d.bad[id])
}

// markSound removes what markBad recorded about a save.
func (d *Dir) markSound(id saveID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.bad, id)
}

func (d *Dir) isBad(id saveID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, bad := d.bad[id]
	return bad
}

// rejection returns why a save was rejected, or nil if it was not.
func (d *Dir) rejection(id saveID) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.bad[id]
}
