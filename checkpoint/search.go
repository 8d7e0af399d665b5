package checkpoint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"ddpbatch/checkpoint/internal/manifest"
)

// search is a look at the names in the checkpoints folder, for a reader.
type search struct {
	d       *Dir
	folders map[int64][]string
	steps   []int64  // descending
	broken  []string // folders that were set aside
	records lineage

	vanished []string // folders whose checkpoint was removed while this search went on
	given    *givenUp // a checkpoint that was passed over for a record
}

// looks bounds how often a search begins anew because what it came by was being removed.
const looks = 8

// settled runs f on a look at the folder, and on another one where something vanished meanwhile that
// had not done so before: then there may be a newer one than f found.
func (d *Dir) settled(ctx context.Context, f func(*search) (*Checkpoint, error)) (*Checkpoint, error) {
	var before []string
	for look := 1; ; look++ {
		s, err := d.search(ctx)
		if err != nil {
			return nil, err
		}
		c, err := f(s)
		if len(s.vanished) == 0 || slices.Equal(s.vanished, before) || look == looks {
			return c, err
		}
		if c != nil {
			c.Close() // it was only read from
		}
		before = s.vanished
	}
}

func (d *Dir) search(ctx context.Context) (*search, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	folders, files, err := d.names()
	if err != nil {
		return nil, err
	}
	s := &search{d: d, folders: map[int64][]string{}}
	for _, name := range folders {
		folder, _ := manifest.ParseFolder(name)
		if folder.Broken {
			s.broken = append(s.broken, name)
			continue
		}
		if s.folders[folder.Step] == nil {
			s.steps = append(s.steps, folder.Step)
		}
		s.folders[folder.Step] = append(s.folders[folder.Step], name)
	}
	slices.SortFunc(s.steps, func(a, b int64) int { return cmp.Compare(b, a) })
	s.records, err = d.readLineage(files)
	return s, err
}

// newest is the newest checkpoint that counts and that use takes.
func (s *search) newest(ctx context.Context, use func(*Checkpoint, context.Context) error) (*Checkpoint, error) {
	var newestBad error
	for _, step := range s.steps {
		candidates, bad, err := s.ofStep(ctx, step, false)
		var c *Checkpoint
		if err == nil {
			c, err = s.first(ctx, candidates, use)
		}
		if err == nil {
			err = bad
		}
		switch {
		case c != nil:
			return c, nil
		case err == nil:
		case !errors.Is(err, ErrCorrupt):
			return nil, err
		case newestBad == nil:
			newestBad = err
		}
	}
	if newestBad != nil {
		return nil, fmt.Errorf("every checkpoint in %s is corrupt; the newest: %w", s.d.path, newestBad)
	}
	return nil, s.nothing(ctx)
}

// ofStep opens the manifests of a step, the one that counts first. With all, superseded ones are
// last; else those and rejected ones are left out. bad is the error of one that is damaged.
func (s *search) ofStep(ctx context.Context, step int64, all bool) (live []*Checkpoint, bad, err error) {
	var old []*Checkpoint
	for _, name := range s.folders[step] {
		c, err := s.open(ctx, name)
		switch {
		case errors.Is(err, ErrNone):
			continue
		case errors.Is(err, ErrCorrupt):
			s.d.warnCorrupt(filepath.Join(s.d.path, name), err)
			bad = err
			continue
		case err != nil:
			return nil, nil, err
		}
		if by, yes := s.records.superseded(c.m, name, s.d.opt.Run); yes {
			if s.given == nil || by.ResumedStep >= 0 {
				s.given = &givenUp{c.m.Step, by}
			}
			old = append(old, c)
		} else if why := s.d.rejection(c.id()); why != nil && !all {
			bad = why
		} else {
			live = append(live, c)
		}
	}
	for _, list := range [][]*Checkpoint{live, old} {
		slices.SortFunc(list, func(a, b *Checkpoint) int {
			own := boolToInt(b.m.Run == s.d.opt.Run) - boolToInt(a.m.Run == s.d.opt.Run)
			return cmp.Or(own, newer(b.m, a.m), cmp.Compare(b.folder, a.folder))
		})
	}
	if all {
		live = append(live, old...)
	}
	return live, bad, nil
}

// open reads the manifest of a folder; ErrNone where that is not committed. That a manifest is not
// there is believed only if the folder does not list it either.
func (s *search) open(ctx context.Context, name string) (*Checkpoint, error) {
	c, err := s.d.openFolder(ctx, name, false)
	if !errors.Is(err, ErrNone) {
		return c, err
	}
	files, listing := s.d.list(filepath.Join(s.d.path, name))
	switch {
	case errors.Is(listing, fs.ErrNotExist):
		s.vanished = append(s.vanished, name)
		return nil, err
	case listing != nil:
		return nil, listing
	case slices.Contains(files, manifest.Name):
		if c, err = s.d.openFolder(ctx, name, false); errors.Is(err, ErrNone) {
			s.vanished = append(s.vanished, name)
			err = unseen(filepath.Join(s.d.path, name, manifest.Name))
		}
	case slices.Contains(files, manifest.DeletingName):
		s.vanished = append(s.vanished, name)
	}
	return c, err
}

// first is the first candidate that use takes; it passes over those that are corrupt. The error
// is that of the first of them, and nil where there is no candidate.
func (s *search) first(ctx context.Context, candidates []*Checkpoint, use func(*Checkpoint, context.Context) error) (*Checkpoint, error) {
	var bad error
	for _, c := range candidates {
		err := use(c, ctx)
		if err == nil {
			return c, nil
		}
		c.Close()
		if errors.Is(err, ErrNone) {
			s.vanished = append(s.vanished, c.folder)
			continue
		}
		if !errors.Is(err, ErrCorrupt) {
			return nil, err
		}
		s.d.warnCorrupt(c.path(), err)
		s.d.markBad(c.id())
		if bad == nil {
			bad = err
		}
	}
	return nil, bad
}
