package checkpoint

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"ddpbatch/checkpoint/internal/manifest"
)

// nothing is the error of a search that has found no checkpoint that counts. It is ErrNone unless something tells of one that this run
// has had since it last began from nothing: a record of what an attempt went on from, or a folder that was set aside. So
// a run whose checkpoints are lost does not begin anew by itself, as far as that can be known: what somebody removed whole, before
// an attempt had gone on from it, tells nothing. What other runs have left does not matter.
func (s *search) nothing(ctx context.Context) error {
	anew := 0 // the last attempt that began from nothing
	own := s.records.of(s.d.opt.Run)
	for _, r := range own {
		if r.ResumedStep < 0 {
			anew = max(anew, r.Attempt)
		}
	}
	own = slices.DeleteFunc(own, func(r manifest.Record) bool { return r.Attempt <= anew })
	slices.SortFunc(own, func(a, b manifest.Record) int { return cmp.Compare(a.Attempt, b.Attempt) })
	var aside, told []string
	for _, name := range s.broken {
		if s.setAsideSince(ctx, name, anew) {
			aside = append(aside, name)
		}
	}
	for _, r := range own {
		told = append(told, manifest.RecordName(r.Attempt, s.d.run))
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
	return fmt.Errorf("%w: every checkpoint in %s is lost: %s (%s, remove %s)", ErrCorrupt, s.d.path, what, anewBy, few(append(told, aside...)))
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

// few names the first of some names, and counts the others.
func few(names []string) string {
	const most = 4
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
