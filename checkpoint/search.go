package checkpoint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"ddpbatch/checkpoint/internal/manifest"
)

// search is a look at the names in the checkpoints folder, for a reader.
type search struct {
	d       *Dir
	listed  []string // all checkpoints' folders
	folders map[int64][]string
	steps   []int64  // descending
	broken  []string // folders that were set aside
	records lineage

	corrupt     []string // folders that were passed over
	uncommitted []string // folders that had no manifest when they were looked at
	vanished    bool     // a checkpoint may be being removed, or have been removed while this search went on
}

// looks bounds how often a search begins anew, with growing pauses (2.5 s together), because what
// it came by was being removed, or because two answers of a network file system did not agree.
const looks = 8

// settled runs f on a look at the folder, and on another one where something was removed meanwhile:
// then there may be a newer one than f found.
func (d *Dir) settled(ctx context.Context, f func(*search) (*Checkpoint, error)) (*Checkpoint, error) {
	wait := firstWait
	for look := 1; ; look++ {
		var c *Checkpoint
		s, err := d.search(ctx)
		if err == nil {
			c, err = f(s)
		}
		if again := isStale(err) || s != nil && s.vanished && !s.unchanged(); !again || look == looks {
			return c, err
		}
		if c != nil {
			c.Close() // it was only read from
		}
		if stopped := d.sleep(ctx, wait); stopped != nil {
			return nil, errors.Join(err, stopped)
		}
		wait = min(2*wait, lastWait)
	}
}

// unchanged says whether nothing can have been committed since the search began: there is no new
// folder, and those that had no manifest have none.
func (s *search) unchanged() bool {
	folders, _, err := s.d.names()
	if err != nil || !slices.Equal(folders, s.listed) {
		return false
	}
	for _, name := range s.uncommitted {
		files, err := s.d.list(filepath.Join(s.d.path, name))
		if err != nil || slices.Contains(files, manifest.Name) {
			return false
		}
	}
	return true
}

func (d *Dir) search(ctx context.Context) (*search, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	folders, files, err := d.names()
	if err != nil {
		return nil, err
	}
	s := &search{d: d, listed: folders, folders: map[int64][]string{}}
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
	if s.records, err = d.readLineage(ctx, files, false); err != nil {
		return nil, err
	}
	return s, nil
}

// newest is the newest checkpoint that counts and that use takes.
func (s *search) newest(ctx context.Context, use func(context.Context, *Checkpoint) error) (*Checkpoint, error) {
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
			if newestBad != nil {
				s.d.log.Warn("every newer checkpoint is corrupt: using the one before it", "path", c.path())
			}
			return c, nil
		case err == nil:
		case !errors.Is(err, ErrCorrupt):
			return nil, err
		case newestBad == nil:
			newestBad = err
		}
	}
	if newestBad != nil {
		return nil, fmt.Errorf("every checkpoint in %s is corrupt (to begin anew, remove %s); the newest: %w", s.d.path, few(s.corrupt), newestBad)
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
			s.corrupt, bad = append(s.corrupt, name), err
			continue
		case err != nil:
			return nil, nil, err
		}
		if _, yes := s.records.superseded(c.m, name, s.d.opt.Run); yes {
			old = append(old, c)
		} else if why := s.d.rejection(c.id()); why != nil && !all {
			s.corrupt, bad = append(s.corrupt, name), why
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
	if !errors.Is(err, ErrNone) || errors.Is(err, errForeign) {
		return c, err
	}
	if err := s.d.absent(filepath.Join(s.d.path, name, manifest.Name)); err != nil {
		return nil, err
	}
	s.uncommitted, s.vanished = append(s.uncommitted, name), true
	return nil, err
}

// first is the first candidate that use takes; it passes over those that are corrupt. The error
// is that of the first of them, and nil where there is no candidate.
func (s *search) first(ctx context.Context, candidates []*Checkpoint, use func(context.Context, *Checkpoint) error) (*Checkpoint, error) {
	var bad error
	for _, c := range candidates {
		err := use(ctx, c)
		if err == nil {
			return c, nil
		}
		c.Close()
		if errors.Is(err, ErrNone) {
			s.vanished = true
			continue
		}
		if !errors.Is(err, ErrCorrupt) {
			return nil, err
		}
		s.d.warnCorrupt(c.path(), err)
		s.d.markBad(c.id())
		s.corrupt = append(s.corrupt, c.folder)
		if bad == nil {
			bad = err
		}
	}
	return nil, bad
}
