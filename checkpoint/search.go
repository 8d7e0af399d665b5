package checkpoint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"ddpbatch/checkpoint/internal/manifest"
	"ddpbatch/internal/backoff"
	"ddpbatch/internal/text"
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

// maxSearches bounds how often a search begins anew, with growing pauses (3.4 s together, on average), because what
// it came by was being removed, or because two answers of a network file system did not agree.
const maxSearches = 9

// mostNames is how many names of folders an error gives, and the number of the others.
const mostNames = 4

// searchUntilStable runs f on a look at the folder, and on another one where something was removed meanwhile:
// then there may be a newer one than f found.
func (d *Dir) searchUntilStable(ctx context.Context, f func(*search) (*Checkpoint, error)) (*Checkpoint, error) {
	wait := backoff.Backoff{First: firstWait, Most: lastWait}
	for look := 1; ; look++ {
		var c *Checkpoint
		s, err := d.search(ctx)
		if err == nil {
			c, err = f(s)
		}
		if again := isStale(err) || s != nil && s.vanished && !s.unchanged(); !again || look == maxSearches {
			return c, err
		}
		if c != nil {
			c.Close() // it was only read from
		}
		if stopped := d.sleep(ctx, wait.Next()); stopped != nil {
			return nil, errors.Join(err, stopped)
		}
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
		return nil, fmt.Errorf("every checkpoint in %s is corrupt (to begin anew, remove %s); the newest: %w",
			s.d.path, text.Few(s.corrupt, mostNames), newestBad)
	}
	return nil, s.noneFound(ctx)
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
		s.d.markBad(c.id(), nil)
		s.corrupt = append(s.corrupt, c.folder)
		if bad == nil {
			bad = err
		}
	}
	return nil, bad
}

// noneFound is the error of a search that has found no checkpoint that counts. It is ErrNone unless something tells of one that this run
// has had since it last began from nothing: a record of what an attempt went on from, or a folder that was set aside. So
// a run whose checkpoints are lost does not begin anew by itself, as far as that can be known: what somebody removed whole, before
// an attempt had gone on from it, tells nothing. What other runs have left does not matter.
func (s *search) noneFound(ctx context.Context) error {
	anew := 0 // the last attempt that began from nothing
	own := s.records.of(s.d.opt.Run)
	for _, r := range own {
		if r.ResumedStep < 0 {
			anew = max(anew, r.Attempt)
		}
	}
	own = slices.DeleteFunc(own, func(r manifest.Record) bool { return r.Attempt <= anew })
	slices.SortFunc(own, func(a, b manifest.Record) int { return cmp.Compare(a.Attempt, b.Attempt) })
	var aside, recordNames []string
	for _, name := range s.broken {
		if s.setAsideSince(ctx, name, anew) {
			aside = append(aside, name)
		}
	}
	for _, r := range own {
		recordNames = append(recordNames, manifest.RecordName(r.Attempt, s.d.run))
	}
	what, anewBy := "", "to begin anew"
	switch {
	case len(own) > 0:
		last := own[len(own)-1]
		what = fmt.Sprintf("attempt %d went on from step %d, which is not there any more", last.Attempt, last.ResumedStep)
		anewBy = "to begin anew, or from what was given up for it"
	case len(aside) > 0:
		what = aside[len(aside)-1] + " was found damaged and set aside, and there is no other"
	default:
		return fmt.Errorf("%w in %s", ErrNone, s.d.path)
	}
	return fmt.Errorf("%w: every checkpoint in %s is lost: %s (%s, remove %s)",
		ErrCorrupt, s.d.path, what, anewBy, text.Few(append(recordNames, aside...), mostNames))
}

// setAsideSince says whether a folder that was set aside is of this run, by an attempt not before anew. One that does not tell whose
// it is counts until the run has begun anew with it there.
func (s *search) setAsideSince(ctx context.Context, name string, anew int) bool {
	if c, err := s.d.openFolder(ctx, name, false); err == nil {
		return c.m.Run == s.d.opt.Run && c.m.Attempt >= anew
	}
	files, _ := s.d.list(filepath.Join(s.d.path, name)) // one that cannot be listed tells nothing
	attempt, own, known := s.d.writerOf(files)
	if !known {
		return anew == 0
	}
	return own && attempt >= anew
}

// writerOf is who wrote what is in a folder, as far as the names of its shards tell: this run, with its last attempt, or another run.
func (d *Dir) writerOf(files []string) (attempt int, own, known bool) {
	for _, file := range files {
		tag, ok := manifest.ParseTag(file)
		known = known || ok
		if ok && tag.Run == d.run {
			attempt, own = max(attempt, tag.Attempt), true
		}
	}
	return attempt, own, known
}
