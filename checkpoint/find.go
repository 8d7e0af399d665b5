package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"ddpbatch/checkpoint/internal/manifest"
)

// Find opens the checkpoint of a step: its manifest and all shards are checked, by their tables
// and checksums of the tables, and no data is read. ErrNone where the step is not committed. Of
// several saves of the step it takes the newest that is whole, and a superseded one only
// where there is nothing else.
func (d *Dir) Find(ctx context.Context, step int64) (c *Checkpoint, err error) {
	defer explain(&err, "find checkpoint of step %d", step)
	return d.find(ctx, step, check)
}

// check is what Find and FindLatest ask of a checkpoint.
func check(ctx context.Context, c *Checkpoint) error { return c.check(ctx) }

// find is the first of a step's saves that use takes.
func (d *Dir) find(ctx context.Context, step int64, use func(context.Context, *Checkpoint) error) (*Checkpoint, error) {
	return d.searchUntilStable(ctx, func(s *search) (*Checkpoint, error) {
		candidates, bad, err := s.ofStep(ctx, step, true)
		if err != nil {
			return nil, err
		}
		c, err := s.first(ctx, candidates, use)
		if c == nil && err == nil {
			err = bad
		}
		if c == nil && err == nil {
			err = fmt.Errorf("%w: step %d is not committed in %s", ErrNone, step, d.path)
		}
		return c, err
	})
}

// FindFolder opens the checkpoint in the folder of that name, as Find does, whether it is superseded, set aside or saved again since.
func (d *Dir) FindFolder(ctx context.Context, folder string) (c *Checkpoint, err error) {
	defer explain(&err, "find checkpoint %s", folder)
	if _, ok := manifest.ParseFolder(folder); !ok {
		return nil, fmt.Errorf("%w: that is not the name of a checkpoint's folder", ErrNone)
	}
	c, err = d.openFolder(ctx, folder, false)
	if err != nil {
		return nil, err
	}
	if err := c.check(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// FindLatest opens the newest checkpoint that is committed, not superseded and passes Find. One
// that is corrupt is logged (Warn: path, file, tensor, what) and the one before it is tried, as if
// it was rejected (Reject); nothing is renamed or removed. To an attempt of a run, checkpoints of
// another run are older than its records (Begin): what they give up is passed over, too.
//
// ErrNone means that the folder tells of none since the run last began from nothing; ErrCorrupt that
// all that there are are corrupt, or that a record or a folder that was set aside tells of one that is
// lost; the error says what to remove to begin anew. An I/O
// error, a lack of permission and ErrFormatTooNew end the search: what cannot be read now is not
// bad, and going on from an older one would silently throw work away.
func (d *Dir) FindLatest(ctx context.Context) (*Checkpoint, error) {
	return d.latest(ctx, check)
}

// latest is the newest checkpoint that use takes.
func (d *Dir) latest(ctx context.Context, use func(context.Context, *Checkpoint) error) (c *Checkpoint, err error) {
	defer explain(&err, "look for the latest checkpoint")
	return d.searchUntilStable(ctx, func(s *search) (*Checkpoint, error) { return s.newest(ctx, use) })
}

func (d *Dir) warnCorrupt(path string, err error) {
	args := []any{"path", path}
	if bad, ok := errors.AsType[*CorruptError](err); ok {
		args = append(args, "file", filepath.Base(bad.Path))
		if bad.Tensor != "" {
			args = append(args, "tensor", bad.Tensor)
		}
		args = append(args, "what", bad.Detail)
	}
	d.log.Warn("checkpoint is corrupt", args...)
}

// FindForResume is FindLatest for the attempt that is to go on from what it finds. What is passed over as corrupt it reads again, and
// renames as Reject does: if it is this run's, and its lengths or checksums are wrong again; of a manifest only the checksum counts. What
// is good when it is read again is looked at again. Before it looks it keeps earlier attempts from removing anything more, as Begin does.
// To a tool (Options.Attempt 0) it is FindLatest.
func (d *Dir) FindForResume(ctx context.Context) (c *Checkpoint, err error) {
	defer explain(&err, "look for the checkpoint to resume from")
	const most = 3 // looks
	if err := d.closeGates(ctx); err != nil {
		return nil, err
	}
	var first error
	for look := 1; ; look++ {
		var passed []string
		c, err = d.searchUntilStable(ctx, func(s *search) (c *Checkpoint, err error) {
			c, err = s.newest(ctx, check)
			passed = s.corrupt
			return c, err
		})
		if err != nil && first != nil {
			err = fmt.Errorf("%w; before anything was set aside: %w", err, first)
		}
		if d.opt.Attempt < 1 || err != nil && !errors.Is(err, ErrCorrupt) || look == most {
			return c, err
		}
		again, fenced := d.rejectPassed(ctx, passed, err != nil)
		if !again && fenced == nil {
			return c, err
		}
		if c != nil {
			c.Close() // it was only read from
		}
		if fenced != nil {
			return nil, fenced
		}
		if first == nil {
			first = err
		}
	}
}

// rejectPassed looks again at folders that a search has passed over. again says that another search may find something else: one is good
// after all, or, where the error of the search names folders, one has another name now. err is what forbids this attempt to do anything.
func (d *Dir) rejectPassed(ctx context.Context, folders []string, named bool) (again bool, err error) {
	for _, name := range folders {
		renamed, err := d.rejectFolder(ctx, name)
		switch {
		case errors.Is(err, errSound):
			again = true
		case errors.Is(err, ErrFenced) || ctx.Err() != nil:
			return false, err
		case err != nil:
			d.log.Warn("corrupt checkpoint stays as it is", "path", filepath.Join(d.path, name), "err", classify(err))
		case renamed:
			again = again || named
		}
	}
	return again, nil
}

// rejectFolder rejects what is in a folder, if it can be opened; or sets it aside, if its manifest is damaged and it is this run's.
func (d *Dir) rejectFolder(ctx context.Context, folder string) (renamed bool, err error) {
	c, why := d.openFolder(ctx, folder, false)
	if why == nil {
		defer c.Close() // it was only read from
		if d.rejection(c.id()) != nil {
			return false, nil
		}
		if err := d.reject(ctx, c); err != nil {
			return false, err
		}
		_, err := d.fs.Stat(c.path())
		return errors.Is(err, fs.ErrNotExist), nil
	}
	if !errors.Is(why, ErrCorrupt) {
		return false, why
	}
	path := filepath.Join(d.path, folder)
	files, err := d.list(path)
	if err != nil {
		return false, err
	}
	if attempt, own, _ := d.writerOf(files); !own || attempt > d.opt.Attempt {
		return false, nil
	}
	data, err := d.readFile(filepath.Join(path, manifest.Name), manifest.MaxBytes)
	if err != nil || manifest.CheckSeal(data) == nil {
		return false, err // what is wrong with it no disk did
	}
	return true, d.setAside(folder, why)
}
