package distributed

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/testkit/vfstest"
	"ddpbatch/internal/vfs"
)

// TestSupersededRanksCannotCommit stops rank 0 of attempt 1 before its commit. Attempt 2 resumes and commits, and then attempt 1 wakes up.
// All ranks of attempt 1 must get an error that it cannot commit, because it is superseded or its files have been swept already, and it
// must not change anything.
func TestSupersededRanksCannotCommit(t *testing.T) {
	t.Parallel()
	disk, _ := newDisk(t)
	asleep, awake := newGate(), newGate()
	fence := func(own int) func() error {
		return func() error {
			if own == 1 {
				select {
				case <-awake.opened:
					return errors.New("attempt 2 has begun")
				default:
				}
			}
			return nil
		}
	}
	saveSteps(t, func(int) vfs.FS { return disk }, Options{}, 1)
	slow := func(rank int) vfs.FS {
		return vfstest.NewInjector(disk, func(_ int, op vfstest.Op) vfstest.Fault {
			if rank == 0 && op.Kind == "create" && strings.Contains(op.Path, "MANIFEST") && strings.Contains(op.Path, "000002") {
				asleep.open()
				awake.passes()
			}
			return vfstest.Fault{}
		})
	}
	zombie := make(chan []error)
	go func() {
		zombie <- trial{world: 3, attempt: 1, o: Options{Async: true}, fs: slow, fence: fence(1)}.run(t.Context(),
			func(ctx context.Context, r *one) error {
				if err := r.save(ctx, 2); err != nil {
					return err
				}
				_, err := r.Wait(ctx)
				return err
			})
	}()
	asleep.passes()
	mustAll(t, trial{world: 2, attempt: 2, fs: func(int) vfs.FS { return disk }, fence: fence(2)}.run(t.Context(),
		func(ctx context.Context, r *one) error {
			if step, err := r.resume(ctx); step != 1 || err != nil {
				return fmt.Errorf("resumed from %d: %w", step, err)
			}
			if err := r.save(ctx, 2); err != nil {
				return err
			}
			_, err := r.Wait(ctx)
			return err
		}))
	awake.open()
	for rank, err := range <-zombie {
		if !errors.Is(err, checkpoint.ErrFenced) && (err == nil || !strings.Contains(err.Error(), "rank 0: commit checkpoint of step 2")) {
			t.Errorf("rank %d of the zombie: %v", rank, err)
		}
	}
	step, err := latest(disk, 2)
	if step != 2 || err != nil {
		t.Fatalf("latest is %d: %v", step, err)
	}
	d, err := checkpoint.Open(sharedPath, checkpoint.Options{FS: disk, Run: "trial"})
	must(t, err)
	c, err := d.FindLatest(t.Context())
	must(t, err)
	defer c.Close()
	if c.Info().Attempt != 2 {
		t.Errorf("step 2 is of attempt %d", c.Info().Attempt)
	}
}

// The node of attempt 1 does not see attempt 2, which begins from step 3 and ends before it saves. Attempt 1 continues to save until its
// retention has something to remove. Then all its ranks get an error that the attempt is superseded, and step 3 is still there.
func TestStaleZombieLearnsThatItIsSuperseded(t *testing.T) {
	t.Parallel()
	disk, _ := newDisk(t)
	view := vfstest.NewView(disk, 1)
	asleep, awake := newGate(), newGate()
	keep := checkpoint.Policy{Last: 2}
	zombie := make(chan []error)
	go func() {
		zombie <- trial{world: 2, attempt: 1, keep: keep, fs: func(int) vfs.FS { return view }}.run(t.Context(),
			func(ctx context.Context, r *one) error {
				if _, err := r.resume(ctx); err != nil {
					return err
				}
				for step := int64(1); step <= 4; step++ {
					if step == 4 && r.rank == 0 {
						view.Hold()
						asleep.open()
					}
					if step == 4 {
						awake.passes()
					}
					if err := r.save(ctx, step); err != nil {
						return err
					}
				}
				return nil
			})
	}()
	asleep.passes()
	mustAll(t, trial{world: 2, attempt: 2, keep: keep, fs: func(int) vfs.FS { return disk }}.run(t.Context(),
		func(ctx context.Context, r *one) error {
			if step, err := r.resume(ctx); step != 3 || err != nil {
				return fmt.Errorf("resumed from %d: %w", step, err)
			}
			return nil
		}))
	awake.open()
	wantAll(t, <-zombie, checkpoint.ErrFenced, "attempt")
	if step, err := latest(disk, 3); step != 3 || err != nil {
		t.Errorf("latest is %d: %v", step, err)
	}
}
