package checkpoint

import (
	"context"
	"fmt"
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
			return now, fmt.Errorf("%w: attempt %d has saved this step already", ErrFenced, other.m.Attempt)
		case other.m.Attempt == dr.tag.Attempt && !now.After(other.m.Created):
			now = other.m.Created.Add(time.Nanosecond)
		}
	}
	return now, nil
}

// superseded is an error where a later attempt has recorded that it goes on from an earlier step.
func (dr *Draft) superseded() error {
	_, files, err := dr.d.names()
	var later lineage
	if err == nil {
		later, err = dr.d.readRecords(files, func(attempt int, run uint32) bool { return attempt > dr.tag.Attempt && run == dr.d.run })
	}
	if err != nil {
		dr.d.log.Warn("later attempts are not known: their records will decide what counts", "path", dr.path(), "err", err)
		return nil
	}
	by, yes := manifest.Superseded(later.of(dr.d.opt.Run), dr.tag.Attempt, dr.step, "")
	if yes {
		return fmt.Errorf("%w: attempt %d has begun, and goes on from step %d", ErrFenced, by.Attempt, by.ResumedStep)
	}
	return nil
}
