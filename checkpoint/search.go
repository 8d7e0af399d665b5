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

// search is one look at the names in the checkpoints folder, to find a checkpoint to read.
type search struct {
	d       *Dir
	listed  []string // all checkpoints' folders
	folders map[int64][]string
	steps   []int64  // descending
	broken  []string // folders that were set aside
	records lineage

	corrupt     []string // folders that were skipped
	uncommitted []string // folders that had no manifest when the search looked at them
	vanished    bool     // a checkpoint may have been removed during this search, or is being removed
}

// maxSearches bounds how often a search is repeated, with growing pauses (3.4 s together, on average), because what
// it found was being removed, or because two answers of a network file system disagreed.
const maxSearches = 9

// mostNames is how many names of folders an error lists; of the others it gives the number.
const mostNames = 4

// searchUntilStable looks at the folder and runs f, and repeats both if something was removed meanwhile:
// then there may be a newer checkpoint than the one that f found.
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

// unchanged reports whether nothing can have been committed since the search began: there is no new
// folder, and those that had no manifest still have none.
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

// newest returns the newest checkpoint that is not superseded and for which use succeeds.
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

// ofStep opens the manifests of a step, in the order in which they take precedence. If all, superseded ones
// are at the end; else superseded and rejected ones are left out. bad is the error of a damaged one.
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

// open reads the manifest of a folder. It returns ErrNone if the folder is not committed, which it concludes only
// if the folder does not list a manifest either.
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

// first returns the first candidate for which use succeeds. It skips those that are corrupt. If none is left, it
// returns the first error about corruption, or nil if there was none.
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

// noneFound returns the error of a search that has found no usable checkpoint. It is ErrNone unless something shows that this run has had
// a checkpoint since it last began from nothing: a record of what an attempt resumed from, or a folder that was set aside. So a run whose
// checkpoints are lost does not silently begin anew. A checkpoint that somebody removed as a whole before an attempt resumed from it leaves
// no trace. What other runs have left does not matter.
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
		what = fmt.Sprintf("attempt %d resumed from step %d, which no longer exists", last.Attempt, last.ResumedStep)
		anewBy = "to begin anew, or from a checkpoint that was superseded"
	case len(aside) > 0:
		what = aside[len(aside)-1] + " was found damaged and set aside, and no other checkpoint is left"
	default:
		return fmt.Errorf("%w in %s", ErrNone, s.d.path)
	}
	return fmt.Errorf("%w: every checkpoint in %s is lost: %s (%s, remove %s)",
		ErrCorrupt, s.d.path, what, anewBy, text.Few(append(recordNames, aside...), mostNames))
}

// setAsideSince reports whether a folder that was set aside is of this run, and of an attempt not before anew. A folder of an unknown run
// counts as long as the run has not begun anew.
func (s *search) setAsideSince(ctx context.Context, name string, anew int) bool {
	if c, err := s.d.openFolder(ctx, name, false); err == nil {
		return c.m.Run == s.d.opt.Run && c.m.Attempt >= anew
	}
	files, _ := s.d.list(filepath.Join(s.d.path, name)) // if it cannot be listed, its run is unknown
	attempt, own, known := s.d.writerOf(files)
	if !known {
		return anew == 0
	}
	return own && attempt >= anew
}

// writerOf returns which run wrote a folder, as far as the names of its shards show it: this run, with its last attempt, or another run.
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
