package checkpoint

import (
	"context"
	"fmt"
	"path/filepath"

	"ddpbatch/checkpoint/internal/manifest"
)

// givenUp is a checkpoint that a record makes count for nothing.
type givenUp struct {
	step int64
	by   manifest.Record
}

// nothing is the error of a search that has found no checkpoint that counts. It is ErrNone only if none can have been lost: a run
// that has saved, and whose checkpoints have all been set aside or removed, must not begin anew without being told to.
func (s *search) nothing(ctx context.Context) error {
	anew, last := 0, manifest.Record{ResumedStep: -1} // the last attempt that began from nothing, and the last one of all
	for _, r := range s.records {
		if r.Run != s.d.opt.Run {
			continue
		}
		if r.Attempt > last.Attempt {
			last = r
		}
		if r.ResumedStep < 0 {
			anew = max(anew, r.Attempt)
		}
	}
	switch {
	case last.ResumedStep >= 0:
		return s.lost("attempt %d went on from step %d, which is not there any more", last.Attempt, last.ResumedStep)
	case s.given != nil && s.given.by.ResumedStep >= 0:
		return s.lost("attempt %d has given up step %d, and went on from step %d, which is not there any more",
			s.given.by.Attempt, s.given.step, s.given.by.ResumedStep)
	}
	for _, name := range s.broken {
		if s.brokenBy(ctx, name) >= anew {
			return s.lost("%s was found damaged and set aside, and there is no other", name)
		}
	}
	return fmt.Errorf("%w in %s", ErrNone, s.d.path)
}

func (s *search) lost(format string, args ...any) error {
	return fmt.Errorf("%w: every checkpoint in %s is lost: %s; resume = \"never\" in [checkpoint] begins from nothing",
		ErrCorrupt, s.d.path, fmt.Sprintf(format, args...))
}

// brokenBy is the attempt that saved what is in a folder that was set aside, as this run counts: 0 where another run did, and later
// than all where that cannot be told.
func (s *search) brokenBy(ctx context.Context, name string) int {
	c, err := s.d.openFolder(ctx, name, false)
	if err == nil {
		if c.m.Run != s.d.opt.Run {
			return 0
		}
		return c.m.Attempt
	}
	attempt := maxAttempt + 1
	files, _ := s.d.list(filepath.Join(s.d.path, name)) // one that cannot be listed tells nothing
	for _, file := range files {
		if by, own := manifest.OwnFile(file, s.d.run); own {
			attempt = by
		}
	}
	return attempt
}
