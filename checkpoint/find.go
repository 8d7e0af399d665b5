package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
)

// Find opens the checkpoint of a step: its manifest and all shards are checked, by their tables
// and checksums of the tables, and no data is read. ErrNone where the step is not committed. Of
// several saves of the step it takes the newest that is whole, and a superseded one only
// where there is nothing else.
func (d *Dir) Find(ctx context.Context, step int64) (*Checkpoint, error) {
	c, err := d.find(ctx, step, (*Checkpoint).check)
	if err != nil {
		return nil, fmt.Errorf("find checkpoint of step %d: %w", step, classify(err))
	}
	return c, nil
}

// find is the first of a step's saves that use takes.
func (d *Dir) find(ctx context.Context, step int64, use func(*Checkpoint, context.Context) error) (*Checkpoint, error) {
	return d.settled(ctx, func(s *search) (*Checkpoint, error) {
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

// FindLatest opens the newest checkpoint that is committed, not superseded and passes Find. One
// that is corrupt is logged (Warn: path, file, tensor, what) and the one before it is tried, as if
// it was rejected (Reject); nothing is renamed or removed. To an attempt of a run, checkpoints of
// another run are older than its records (Begin): what they give up is passed over, too.
//
// ErrNone means that there was none, or that a later attempt than those that saved has begun from
// nothing; ErrCorrupt that all that there were are corrupt, or were set aside for that. An I/O
// error, a lack of permission and ErrFormatTooNew end the search: what cannot be read now is not
// bad, and going on from an older one would silently throw work away.
func (d *Dir) FindLatest(ctx context.Context) (*Checkpoint, error) {
	return d.latest(ctx, (*Checkpoint).check)
}

// latest is the newest checkpoint that use takes.
func (d *Dir) latest(ctx context.Context, use func(*Checkpoint, context.Context) error) (*Checkpoint, error) {
	c, err := d.settled(ctx, func(s *search) (*Checkpoint, error) { return s.newest(ctx, use) })
	if err != nil {
		return nil, fmt.Errorf("look for the latest checkpoint: %w", classify(err))
	}
	return c, nil
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
	d.log.Warn("checkpoint is corrupt: using the one before it", args...)
}
