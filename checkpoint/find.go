package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"ddpbatch/checkpoint/internal/manifest"
)

// Find opens the checkpoint of a step. It checks the manifest and all shards by their tables and the
// tables' checksums, and reads no data. It returns ErrNone if the step is not committed. If there are
// several saves of the step, it takes the newest one that is whole. It takes a superseded
// one only if all are superseded.
func (d *Dir) Find(ctx context.Context, step int64) (c *Checkpoint, err error) {
	defer explain(&err, "find checkpoint of step %d", step)
	return d.find(ctx, step, check)
}

// check is what Find and FindLatest check of a checkpoint.
func check(ctx context.Context, c *Checkpoint) error { return c.check(ctx) }

// find returns the first save of a step for which use succeeds.
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

// FindFolder opens the checkpoint in the folder of that name, as Find does, even if it is superseded, set aside or saved again since.
func (d *Dir) FindFolder(ctx context.Context, folder string) (c *Checkpoint, err error) {
	defer explain(&err, "find checkpoint %s", folder)
	if _, ok := manifest.ParseFolder(folder); !ok {
		return nil, fmt.Errorf("%w: that is not the name of a checkpoint folder", ErrNone)
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

// FindLatest opens the newest checkpoint that is committed, not superseded and passes the checks of Find.
// If one is corrupt, FindLatest logs it (a warning with path, file, tensor and what is wrong) and tries the
// one before it; a rejected one (Reject) it skips in the same way. It renames and removes nothing. To an
// attempt of a run, checkpoints of another run are older than all its records (Begin), so records can
// supersede them, too.
//
// ErrNone means that the folder shows no trace of a checkpoint since the run last began from nothing.
// ErrCorrupt means that all checkpoints are corrupt, or that a record or a folder that was set aside shows
// that one is lost; the error says what to remove to begin anew. An I/O error, a lack of permission and
// ErrFormatTooNew end the search: a checkpoint that cannot be read now may be good, and resuming from an
// older one would silently throw work away.
func (d *Dir) FindLatest(ctx context.Context) (*Checkpoint, error) {
	return d.latest(ctx, check)
}

// latest returns the newest checkpoint for which use succeeds.
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

// FindForResume is FindLatest for the attempt that will resume from the result. It reads a checkpoint again that the search skipped as
// corrupt. If it is this run's, and its lengths or checksums are wrong again, FindForResume renames it as Reject does; of a manifest only
// the checksum matters. If it is good when read again, the search is repeated. Before it searches, FindForResume keeps earlier attempts
// from removing anything more, as Begin does. For a tool (Options.Attempt 0) it is FindLatest.
func (d *Dir) FindForResume(ctx context.Context) (c *Checkpoint, err error) {
	defer explain(&err, "look for the checkpoint to resume from")
	const most = 3 // searches
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
			err = fmt.Errorf("%w; the first search, before any checkpoint was set aside: %w", err, first)
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

// rejectPassed looks again at folders that a search has skipped. It sets again if another search may have another result: a checkpoint is
// good after all, or, with named (the error of the search names folders), a folder was renamed. It returns an error if this attempt must
// stop.
func (d *Dir) rejectPassed(ctx context.Context, folders []string, named bool) (again bool, err error) {
	for _, name := range folders {
		renamed, err := d.rejectFolder(ctx, name)
		switch {
		case errors.Is(err, errSound):
			again = true
		case errors.Is(err, ErrFenced) || ctx.Err() != nil:
			return false, err
		case err != nil:
			d.log.Warn("corrupt checkpoint cannot be set aside", "path", filepath.Join(d.path, name), "err", classify(err))
		case renamed:
			again = again || named
		}
	}
	return again, nil
}

// rejectFolder rejects the checkpoint in a folder if it can be opened. If its manifest is damaged and the folder is this run's, it sets it
// aside.
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
		return false, err // its checksum is right, so the disk is not the cause
	}
	return true, d.setAside(folder, why)
}
