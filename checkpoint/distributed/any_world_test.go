package distributed_test

import (
	"context"
	"fmt"
	"testing"

	"ddpbatch/checkpoint"
	"ddpbatch/checkpoint/distributed"
	"ddpbatch/internal/testkit/thin"
	"ddpbatch/internal/testkit/vfstest"
)

// TestResumeWithAnyWorld saves with n ranks and resumes with m, for all pairs up to 8: a full checkpoint and a
// delta, then the m go on and n come back.
func TestResumeWithAnyWorld(t *testing.T) { // without the race detector
	t.Parallel()
	for n := 1; n <= 8; n++ {
		for m := 1 + n%thin.Step(3); m <= 8; m += thin.Step(3) {
			t.Run(fmt.Sprintf("%d to %d", n, m), func(t *testing.T) {
				t.Parallel()
				disk := vfstest.New(t)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				last := int64(0)
				for attempt, world := range []int{n, m, n} {
					j := job{
						world: world, attempt: attempt + 1, fs: same(disk), keep: checkpoint.Policy{Last: 2},
						saver: distributed.Options{Async: attempt != 1, Delta: attempt},
					}
					need(t, j.run(ctx, func(r *rank) error {
						step, err := r.resume(ctx)
						if err != nil {
							return err
						}
						if step != last {
							return fmt.Errorf("resumed from step %d, want %d", step, last)
						}
						for step := last + 1; step <= last+3; step++ {
							if err := r.save(ctx, step, world); err != nil {
								return err
							}
						}
						info, err := r.Wait(ctx)
						if err == nil && info.Step != last+3 {
							err = fmt.Errorf("wait says that step %d is the newest, want %d", info.Step, last+3)
						}
						return err
					}))
					last += 3
					step, variant, err := newestOf(ctx, disk, hardPath)
					need(t, err)
					if step != last || variant != world {
						t.Fatalf("the newest is step %d of %d ranks, want %d of %d", step, variant, last, world)
					}
				}
				_, err := wholeDisk(ctx, disk, hardPath)
				need(t, err)
			})
		}
	}
}
