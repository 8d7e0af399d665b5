package distributed_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"ddpbatch/checkpoint"
	"ddpbatch/checkpoint/distributed"
	"ddpbatch/internal/testkit"
	"ddpbatch/internal/testkit/thin"
	"ddpbatch/internal/testkit/vfstest"
	"ddpbatch/internal/vfs"
)

// clients holds the clients of one file server, one for each rank of a job.
type clients struct {
	views []*vfstest.View
	ops   []atomic.Int64
}

// newClients makes n clients, each with its own seed. Every fourth operation of a client refreshes its view, as time would do, so a view
// that is held does not stay stale.
func newClients(m *vfstest.Mem, n int, seed uint64) *clients {
	c := &clients{ops: make([]atomic.Int64, n)}
	for i := range n {
		c.views = append(c.views, vfstest.NewView(m, seed*100+uint64(i)))
	}
	return c
}

func (c *clients) fs(rank int) vfs.FS {
	return vfstest.NewInjector(c.views[rank], func(int, vfstest.Op) vfstest.Fault {
		if c.ops[rank].Add(1)%4 == 0 {
			c.views[rank].Refresh()
		}
		return vfstest.Fault{}
	})
}

// TestStaleClientsSaveAndResume saves and resumes with ranks on different clients. The caches of all ranks but rank 0 stop following the
// server before each save and resume, and about every fourth reply is lost.
func TestStaleClientsSaveAndResume(t *testing.T) { // without the race detector
	t.Parallel()
	for seed, err := range testkit.Each(12, func(seed int) error { // all at once, since ranks wait for files that they do not see yet
		if seed%thin.Step(4) > 0 {
			return nil
		}
		m := vfstest.New(t)
		if err := staleClients(t, m, uint64(seed)); err != nil {
			return fmt.Errorf("%w\n%s", err, filesBelow(m, hardPath))
		}
		return nil
	}) {
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

func staleClients(t *testing.T, m *vfstest.Mem, seed uint64) error {
	last := int64(0)
	for attempt := 1; attempt <= 3; attempt++ {
		world := 2 + int(seed+uint64(attempt))%3
		c := newClients(m, world, seed*10+uint64(attempt))
		j := job{
			world: world, attempt: attempt, keep: checkpoint.Policy{Last: 2}, fs: c.fs,
			saver: distributed.Options{Async: seed%2 == 0, Delta: int(seed) % 3},
		}
		err := j.run(t.Context(), func(r *rank) error {
			c.views[r.number].LoseReplies(25)
			hold := func() {
				if r.number > 0 {
					c.views[r.number].Hold()
				}
			}
			hold()
			step, err := r.resume(t.Context())
			if err != nil {
				return fmt.Errorf("resume: %w", err)
			}
			if step != last {
				return fmt.Errorf("resumed from step %d, want %d", step, last)
			}
			for step := last + 1; step <= last+4; step++ {
				hold()
				if err := r.save(t.Context(), step, attempt); err != nil {
					return fmt.Errorf("step %d: %w", step, err)
				}
			}
			_, err = r.Wait(t.Context())
			return err
		})
		if err != nil {
			return fmt.Errorf("attempt %d: %w", attempt, err)
		}
		last += 4
		step, variant, err := newestOf(t.Context(), m, hardPath)
		if err != nil || step != last || variant != attempt {
			return fmt.Errorf("the newest is step %d of attempt %d, want %d of %d: %w", step, variant, last, attempt, err)
		}
	}
	_, err := wholeDisk(t.Context(), m, hardPath)
	return err
}

// With a stale listing, rank 0 may resume from an older checkpoint. It must not take a good checkpoint for a broken one, or remove newer
// checkpoints that it does not see.
func TestStaleRankZeroBreaksNothing(t *testing.T) { // without the race detector
	t.Parallel()
	for held := int64(1); held <= 4; held++ {
		m := vfstest.New(t)
		ctx := context.Background()
		cache := vfstest.NewView(m, 9)
		j := job{world: 2, attempt: 1, fs: same(m)}
		need(t, j.run(ctx, func(r *rank) error {
			if _, err := r.resume(ctx); err != nil {
				return err
			}
			for step := int64(1); step <= 4; step++ {
				if err := r.save(ctx, step, 0); err != nil {
					return err
				}
				if _, err := r.Wait(ctx); err != nil {
					return err
				}
				if r.number == 0 && step == held {
					cache.Hold()
				}
			}
			return nil
		}))
		j = job{world: 2, attempt: 2, fs: same(cache)}
		var from int64
		need(t, j.run(ctx, func(r *rank) error {
			step, err := r.resume(ctx)
			if r.number == 0 {
				from = step
			}
			return err
		}))
		if from != held {
			t.Errorf("held at step %d: resumed from %d", held, from)
		}
		steps, err := wholeDisk(ctx, m, hardPath)
		need(t, err)
		if fmt.Sprint(steps) != fmt.Sprint([]int64{1, 2, 3, 4}[:held]) && fmt.Sprint(steps) != "[1 2 3 4]" {
			t.Errorf("held at step %d: left are %v", held, steps)
		}
	}
}
