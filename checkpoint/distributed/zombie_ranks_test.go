package distributed_test

import (
	"context"
	"errors"
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

// sleeper is attempt 1 of a run. One of its ranks, the victim, stops before its k-th operation.
type sleeper struct {
	victim, k    int
	asleep, wake chan struct{}
	run          *vfstest.Mem
	newest       atomic.Int64 // the newest attempt
}

func (z *sleeper) fence(attempt int64) func() error {
	return func() error {
		if newest := z.newest.Load(); newest > attempt {
			return fmt.Errorf("attempt %d has begun", newest)
		}
		return nil
	}
}

// first runs attempt 1, which saves steps 1 to 4 and keeps two.
func (z *sleeper) first(in vfs.FS) error {
	ctx := context.Background()
	j := job{
		world: 2, attempt: 1, keep: checkpoint.Policy{Last: 2}, fence: z.fence(1),
		saver: distributed.Options{Async: z.k%2 == 0, Delta: 1},
		fs: func(rank int) vfs.FS {
			if rank == z.victim {
				return in
			}
			return z.run
		},
	}
	return j.run(ctx, func(r *rank) error {
		if _, err := r.resume(ctx); err != nil {
			return err
		}
		for step := int64(1); step <= 4; step++ {
			if err := r.save(ctx, step, 1); err != nil {
				return err
			}
		}
		_, err := r.Wait(ctx)
		return err
	})
}

// second runs attempt 2, which resumes with 3 ranks and saves 3 more steps.
func (z *sleeper) second() (resumed int64, err error) {
	ctx := context.Background()
	j := job{
		world: 3, attempt: 2, keep: checkpoint.Policy{Last: 2}, fence: z.fence(2), fs: same(z.run),
		saver: distributed.Options{Async: true, Delta: 2},
	}
	err = j.run(ctx, func(r *rank) error {
		step, err := r.resume(ctx)
		if err != nil {
			return err
		}
		if r.number == 0 {
			resumed = step
		}
		for range 3 {
			step++
			if err := r.save(ctx, step, 2); err != nil {
				return err
			}
		}
		_, err = r.Wait(ctx)
		return err
	})
	return resumed, err
}

// TestZombieRanksChangeNoNewerCheckpoint stops one of the two ranks of attempt 1 before its k-th operation, lets attempt 2 resume and save,
// and lets attempt 1 continue. The checkpoints of attempt 2 must stay as they are.
func TestZombieRanksChangeNoNewerCheckpoint(t *testing.T) { // without the race detector
	if testing.Short() {
		t.Skip("-short: it stops ranks very many times")
	}
	t.Parallel()
	for victim := range 2 {
		whole := &sleeper{victim: victim, run: vfstest.New(t)}
		counter := vfstest.NewInjector(whole.run, nil)
		need(t, whole.first(counter))
		operations := counter.Log()
		t.Logf("rank %d: %d operations", victim, len(operations))
		// All at once: a rank that wakes up may look for the folder of its draft for some seconds.
		for k, err := range testkit.Each(len(operations), func(k int) error {
			z := &sleeper{victim: victim, k: k + 1, run: vfstest.New(t), asleep: make(chan struct{}), wake: make(chan struct{})}
			if k%thin.Step(17) > 0 {
				return nil
			}
			if err := z.play(t.Context()); err != nil {
				return fmt.Errorf("%w\n%s", err, filesBelow(z.run, hardPath))
			}
			return nil
		}) {
			if err != nil {
				t.Fatalf("rank %d asleep before operation %d (%s): %v", victim, k+1, operations[k], err)
			}
		}
	}
}

func (z *sleeper) play(ctx context.Context) error {
	z.newest.Store(1)
	in := vfstest.NewInjector(z.run, func(k int, _ vfstest.Op) vfstest.Fault {
		if k != z.k {
			return vfstest.Fault{}
		}
		close(z.asleep)
		return vfstest.Fault{Wait: z.wake}
	})
	var zombieErr error
	done := make(chan struct{})
	go func() {
		defer close(done)
		zombieErr = z.first(in)
	}()
	select {
	case <-z.asleep:
	case <-done: // it had fewer operations: the order of asynchronous saves varies
		return zombieErr
	}
	z.newest.Store(2)
	resumed, err := z.second()
	if err == nil {
		err = z.look(ctx, resumed+3)
	}
	close(z.wake)
	<-done
	if err != nil {
		return fmt.Errorf("attempt 2: %w", err)
	}
	if errors.Is(zombieErr, checkpoint.ErrCorrupt) { // the files that it misses were removed or never existed
		return fmt.Errorf("attempt 1 takes it for corruption that it is superseded: %w", zombieErr)
	}
	if err := z.look(ctx, resumed+3); err != nil {
		return fmt.Errorf("after attempt 1 woke up (%v): %w", zombieErr, err)
	}
	return nil
}

// look wants the newest checkpoint to be step newest of attempt 2, and the one before it to be there.
func (z *sleeper) look(ctx context.Context, newest int64) error {
	step, variant, err := newestOf(ctx, z.run, hardPath)
	if err != nil {
		return err
	}
	if step != newest || variant != 2 {
		return fmt.Errorf("the newest is step %d of attempt %d, want %d of 2", step, variant, newest)
	}
	d, err := checkpoint.Open(hardPath, checkpoint.Options{FS: z.run, Run: "run"})
	if err != nil {
		return err
	}
	c, err := d.Find(ctx, newest-1)
	if err != nil {
		return err
	}
	if variant, err := check(ctx, c); err != nil || variant != 2 {
		return fmt.Errorf("step %d is attempt %d's: %w", newest-1, variant, err)
	}
	if err := c.Close(); err != nil {
		return err
	}
	_, err = wholeDisk(ctx, z.run, hardPath)
	return err
}
