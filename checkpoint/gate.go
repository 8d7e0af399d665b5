package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"syscall"

	"ddpbatch/checkpoint/internal/manifest"
	"ddpbatch/internal/backoff"
	"ddpbatch/internal/vfs"
)

// A gate is the folder through which an attempt moves the commit record of every checkpoint that it removes. A later attempt closes the
// gate before it looks for a checkpoint to resume from: it puts a file in its place. The file system's server decides whether a rename goes
// into a folder or fails at a file, whatever a client remembers of it (RFC 7530, 16.27: the server looks the target's folder up by its
// handle). So an attempt that was cut off removes nothing from then on, even if its fence and its view are stale.

// gateTries bounds how often closing a gate is tried, with growing pauses (1.9 s together, on average): an attempt may be moving a record
// through it at the moment, or this client may remember an old list of it.
const gateTries = 9

func (d *Dir) gate(attempt int) string {
	return filepath.Join(d.path, manifest.GateName(attempt, d.run))
}

// takeOut renames the commit record of a checkpoint to the name of one that is being removed. An attempt does so through its gate. name is
// the record's present name. d.changing is held.
func (d *Dir) takeOut(e *folderInfo, name string, size int64) error {
	from, to := filepath.Join(e.info.Path, name), filepath.Join(e.info.Path, manifest.DeletingName)
	if err := d.fence(); err != nil {
		return err
	}
	switch {
	case d.opt.Attempt > 0:
	case from == to:
		return nil
	default:
		return vfs.Rename(d.fs, from, to, size)
	}
	gate := d.gate(d.opt.Attempt)
	if !d.gateMade {
		if err := d.fs.Mkdir(gate); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		d.gateMade = true
	}
	inside := filepath.Join(gate, e.name)
	err := vfs.Rename(d.fs, from, inside, size)
	if err == nil && from != to && slices.Contains(e.files, manifest.DeletingName) {
		err = d.remove(to) // a crash has left the same file under two names: renaming it to itself would keep both
	}
	if err == nil {
		err = vfs.Rename(d.fs, inside, to, size)
	}
	if err == nil {
		return nil
	}
	d.gateMade = false // perhaps somebody has removed it
	if info, unknown := d.fs.Stat(gate); errors.Is(err, syscall.ENOTDIR) || unknown == nil && !info.IsDir() {
		return fmt.Errorf("%w: a later attempt of the run has begun; end this one, or start it as a later attempt", ErrFenced)
	}
	return err
}

// closeGates ends the removals of earlier attempts of this run, and restores checkpoints whose commit record alone was moved. It
// closes the gate of the attempt just before this one even without a record of it: this client's view may be old.
func (d *Dir) closeGates(ctx context.Context) error {
	d.changing.Lock()
	defer d.changing.Unlock()
	entries, err := d.fs.ReadDir(d.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	closed := map[int]bool{} // by earlier attempt
	if d.opt.Attempt > 1 {
		closed[d.opt.Attempt-1] = false
	}
	for _, e := range entries {
		attempt, run, gate := manifest.ParseGateName(e.Name())
		ok := gate
		if !gate {
			attempt, run, ok = manifest.ParseRecordName(e.Name())
		}
		if ok && run == d.run && attempt < d.opt.Attempt {
			closed[attempt] = closed[attempt] || gate && !e.IsDir()
		}
	}
	for _, attempt := range slices.Sorted(maps.Keys(closed)) {
		if closed[attempt] {
			continue
		}
		if err := d.closeGate(ctx, d.gate(attempt)); err != nil {
			return fmt.Errorf("keep attempt %d from removing more: %w", attempt, err)
		}
	}
	return nil
}

func (d *Dir) closeGate(ctx context.Context, gate string) error {
	wait := backoff.Backoff{First: firstWait, Most: lastWait}
	for try := range gateTries {
		if try > 1 { // the first try may have emptied the gate
			if err := d.sleep(ctx, wait.Next()); err != nil {
				return err
			}
		}
		if err := errors.Join(ctx.Err(), d.fence()); err != nil {
			return err
		}
		f, err := d.fs.Create(gate)
		if err == nil {
			return f.Close()
		}
		if !errors.Is(err, fs.ErrExist) {
			return err
		}
		names, err := d.list(gate)
		for _, name := range names {
			if err == nil {
				err = d.giveBack(gate, name)
			}
		}
		if err == nil {
			err = d.removeDir(gate)
		}
		switch {
		case errors.Is(err, syscall.ENOTDIR):
			return nil // it is closed
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return err
		}
	}
	return fmt.Errorf("%s does not become empty: remove what is in it", gate)
}

// giveBack puts the commit record of a whole checkpoint back into its folder. If the checkpoint is not whole it removes the record: the
// removal had already continued, and a crash has left the record here, too.
func (d *Dir) giveBack(gate, name string) error {
	if folder, ok := manifest.ParseFolder(name); !ok || folder.Broken {
		return nil
	}
	inside, path := filepath.Join(gate, name), filepath.Join(d.path, name)
	data, err := d.readFile(inside, manifest.MaxBytes)
	if err != nil && !errors.Is(err, ErrCorrupt) {
		return err
	}
	m, bad := manifest.Parse(data)
	files, listing := d.list(path)
	if listing != nil && !errors.Is(listing, fs.ErrNotExist) {
		return listing
	}
	if err != nil || bad != nil || !hasShards(m, files) || slices.Contains(files, manifest.Name) ||
		slices.Contains(files, manifest.DeletingName) {
		return d.remove(inside)
	}
	if err := d.fence(); err != nil {
		return err
	}
	if err := vfs.Rename(d.fs, inside, filepath.Join(path, manifest.Name), int64(len(data))); err != nil {
		return err
	}
	return d.fs.SyncDir(path)
}
