package checkpoint

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"ddpbatch/checkpoint/internal/manifest"
)

// laterThanOthers is now, or later where this attempt has a save of the same step that would seem
// newer because the clock was set back. Where a later attempt has one, this one would count for
// nothing.
func (dr *Draft) laterThanOthers(ctx context.Context, now time.Time) (time.Time, error) {
	folders, _, err := dr.d.names()
	if err != nil {
		dr.d.log.Warn("other saves of the step are not known: the clock decides which is newer", "path", dr.path(), "err", err)
		return now, nil
	}
	for _, name := range folders {
		folder, _ := manifest.ParseFolder(name)
		if folder.Step != dr.step || folder.Broken || name == dr.folder {
			continue
		}
		other, err := dr.d.openFolder(ctx, name, false)
		switch {
		case err != nil || other.m.Run != dr.d.opt.Run:
		case other.m.Attempt > dr.tag.Attempt:
			return now, outranked("attempt %d of the run has saved this step already", other.m.Attempt)
		case other.m.Attempt == dr.tag.Attempt && !now.After(other.m.Created):
			now = other.m.Created.Add(time.Nanosecond)
		}
	}
	return now, nil
}

// stillCounts is an error where a later attempt has recorded that it goes on from an earlier step.
func (dr *Draft) stillCounts(ctx context.Context) error {
	_, files, err := dr.d.names()
	var later lineage
	if err == nil {
		files = slices.DeleteFunc(files, func(name string) bool {
			attempt, run, ok := manifest.ParseRecordName(name)
			return !ok || attempt <= dr.tag.Attempt || run != dr.d.run
		})
		later, err = dr.d.readRecords(ctx, files)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		dr.d.log.Warn("later attempts are not known: their records will decide what counts",
			"path", filepath.Join(dr.d.path, dr.folder), "err", err)
		return nil
	}
	by, yes := manifest.Superseded(later.of(dr.d.opt.Run), dr.tag.Attempt, dr.step, "")
	switch {
	case yes && by.ResumedStep < 0:
		return outranked("attempt %d of the run has begun, from nothing", by.Attempt)
	case yes:
		return outranked("attempt %d of the run has begun, and goes on from step %d", by.Attempt, by.ResumedStep)
	}
	return nil
}

func outranked(format string, args ...any) error {
	return fmt.Errorf("%w: %s: what this one saves counts for nothing; end it, or start it as a later attempt", ErrFenced, fmt.Sprintf(format, args...))
}
