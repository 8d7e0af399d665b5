package distributed_test

import (
	"context"
	"errors"
	"fmt"

	"ddpbatch/checkpoint"
	"ddpbatch/checkpoint/distributed"
	"ddpbatch/internal/testkit"
	"ddpbatch/internal/vfs"
)

// job is one attempt of a run.
type job struct {
	world   int
	attempt int
	keep    checkpoint.Policy
	fence   func() error
	saver   distributed.Options
	fs      func(rank int) vfs.FS // each rank's view of the disk
	path    string                // hardPath where it is ""
}

// rank is what runs as one rank of a job.
type rank struct {
	*distributed.Saver
	number int
	arrays []distributed.Array
}

// save fills the arrays and saves them.
func (r *rank) save(ctx context.Context, step int64, variant int) error {
	fill(r.arrays, step, variant)
	err := r.Save(ctx, meta(step, variant))
	fill(r.arrays, step+1, 77) // training goes on: the save must not see this
	return err
}

// resume checks what the group resumes from, and returns its step: 0 for none. Rank 0 reads all of it,
// so that damage anywhere counts, also in what no rank of a smaller world needs.
func (r *rank) resume(ctx context.Context) (int64, error) {
	c, err := r.Resume(ctx, func(c *checkpoint.Checkpoint) error {
		if r.number > 0 {
			return checkOwn(ctx, c, r.number)
		}
		_, err := check(ctx, c)
		return err
	})
	if errors.Is(err, checkpoint.ErrNone) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return c.Step(), c.Close()
}

// run runs a job on all its ranks and joins their errors. A rank that ends with an error dies: the
// others' collectives end with it.
func (j job) run(ctx context.Context, body func(r *rank) error) error {
	m := distributed.NewMeeting(j.world)
	errs := testkit.Each(j.world, func(number int) error {
		err := j.one(ctx, m.Member(number), body)
		if err != nil {
			m.Die()
			return fmt.Errorf("rank %d: %w", number, err)
		}
		return nil
	})
	return errors.Join(errs...)
}

func (j job) one(ctx context.Context, m distributed.Group, body func(r *rank) error) error {
	o := j.saver
	o.FS = j.fs(m.Rank())
	path := j.path
	if path == "" {
		path = hardPath
	}
	var dir *checkpoint.Dir
	if m.Rank() == 0 {
		var err error
		dir, err = checkpoint.Open(path, checkpoint.Options{FS: o.FS, Run: "run", Attempt: j.attempt, Keep: j.keep, Fence: j.fence})
		if err != nil {
			return err
		}
	}
	arrays := arraysOf(m.Rank())
	saver, err := distributed.New(ctx, m, dir, arrays, o)
	if err != nil {
		return fmt.Errorf("new: %w", err)
	}
	return errors.Join(body(&rank{Saver: saver, number: m.Rank(), arrays: arrays}), saver.Close())
}
