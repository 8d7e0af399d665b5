package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"ddpbatch/checkpoint/internal/manifest"
)

// FindForResume is FindLatest for the attempt that is to go on from what it finds. What is passed over as corrupt it reads again, and
// renames as Reject does: if it is this run's, and its lengths or checksums are wrong again; of a manifest only the checksum counts. What
// is good when it is read again is looked at again. Before it looks it keeps earlier attempts from removing anything more, as Begin does.
// To a tool (Options.Attempt 0) it is FindLatest.
func (d *Dir) FindForResume(ctx context.Context) (*Checkpoint, error) {
	const most = 3 // looks
	if err := d.closeGates(ctx); err != nil {
		return nil, fmt.Errorf("look for the checkpoint to resume from: %w", classify(err))
	}
	var first error
	for look := 1; ; look++ {
		var passed []string
		c, err := d.settled(ctx, func(s *search) (c *Checkpoint, err error) {
			c, err = s.newest(ctx, check)
			passed = s.corrupt
			return c, err
		})
		if err != nil && first != nil {
			err = fmt.Errorf("%w; before anything was set aside: %w", err, first)
		}
		if err != nil {
			err = fmt.Errorf("look for the checkpoint to resume from: %w", classify(err))
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
			return nil, fmt.Errorf("look for the checkpoint to resume from: %w", classify(fenced))
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
