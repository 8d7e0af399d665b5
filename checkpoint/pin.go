package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"ddpbatch/checkpoint/internal/manifest"
)

// Pin keeps the checkpoint of a step whatever the policy says, durably, by a file PINNED.LABEL
// in its folder (PINNED if the label is empty). A checkpoint of this run that had the label before loses
// it. Pin returns ErrNone if the step is not committed, and another error if the checkpoint cannot be
// read at the moment.
func (d *Dir) Pin(ctx context.Context, step int64, label string) (err error) {
	defer explain(&err, "pin checkpoint of step %d in %s", step, d.path)
	if err := manifest.CheckPinLabel(label); err != nil {
		return err
	}
	d.changing.Lock()
	defer d.changing.Unlock()
	v, err := d.look(ctx, false)
	if err != nil {
		return err
	}
	var chosen *folderInfo
	for _, e := range v.folders {
		if e.info.Step == step && e.m != nil && e.m.Run == d.opt.Run && d.good(e) {
			chosen = e
		}
	}
	if chosen == nil {
		return d.noneToPin(v, step)
	}
	if err := d.putPin(chosen, label); err != nil {
		return err
	}
	for _, e := range v.folders {
		if e == chosen || e.m == nil || e.m.Run != d.opt.Run || !slices.Contains(e.info.Pinned, label) {
			continue
		}
		if err := d.remove(filepath.Join(e.info.Path, manifest.PinName(label))); err != nil {
			return err
		}
		if err := d.fs.SyncDir(e.info.Path); err != nil {
			return err
		}
	}
	return nil
}

// noneToPin returns the error for a step without a checkpoint to pin. One that cannot be read may be such a checkpoint.
func (d *Dir) noneToPin(v *view, step int64) error {
	for _, e := range v.folders {
		if e.info.Step == step && e.err != nil && (e.m == nil || e.m.Run == d.opt.Run) {
			return e.err
		}
	}
	return fmt.Errorf("%w: step %d", ErrNone, step)
}

// putPin creates the file, which is empty: all information is in its name. It removes the file again if
// the checkpoint has been removed meanwhile.
func (d *Dir) putPin(e *folderInfo, label string) error {
	if err := d.fence(); err != nil {
		return err
	}
	f, err := d.fs.Create(filepath.Join(e.info.Path, manifest.PinName(label)))
	if err == nil {
		err = f.Close()
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := d.fs.SyncDir(e.info.Path); err != nil {
		return err
	}
	if _, err := d.fs.Stat(filepath.Join(e.info.Path, manifest.Name)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// The checkpoint is being removed. Whoever removes it looks for pins after renaming the manifest.
	if err := d.remove(filepath.Join(e.info.Path, manifest.PinName(label))); err != nil {
		return err
	}
	if err := d.removeDir(e.info.Path); err != nil {
		return err
	}
	return fmt.Errorf("%w: step %d has just been removed", ErrNone, e.info.Step)
}
