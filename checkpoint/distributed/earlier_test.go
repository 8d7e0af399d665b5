package distributed

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/vfs"
)

// TestErrorOfAnEarlierSave: a save fails in the background for a moment. The next call tells of it, by its step, on every rank; called again it
// saves. An error of a save that is waited for is its own.
func TestErrorOfAnEarlierSave(t *testing.T) {
	t.Parallel()
	for _, later := range []bool{true, false} {
		disk, _ := newDisk(t)
		var broken atomic.Bool
		broken.Store(true)
		fs := func(rank int) vfs.FS {
			return vfs.NewInjector(disk, func(_ int, op vfs.Op) vfs.Fault {
				if rank == 1 && op.Kind == "write" && broken.Load() && strings.Contains(op.Path, "shard-00001") {
					return vfs.Fault{Err: syscall.ENOSPC}
				}
				return vfs.Fault{}
			})
		}
		mustAll(t, trial{world: 2, attempt: 1, o: Options{Async: true}, fs: fs}.run(t.Context(), func(ctx context.Context, r *one) error {
			if err := r.save(ctx, 4); err != nil {
				return err
			}
			if !later {
				_, err := r.Wait(ctx)
				if _, ok := errors.AsType[*EarlierError](err); ok || !errors.Is(err, checkpoint.ErrNoSpace) {
					return fmt.Errorf("waiting for the save that has failed: %w", err)
				}
				return nil
			}
			err := r.save(ctx, 6)
			earlier, ok := errors.AsType[*EarlierError](err)
			if !ok || earlier.Step != 4 || !errors.Is(err, checkpoint.ErrNoSpace) || !strings.HasPrefix(err.Error(), "before step 6: the save of step 4: rank 1: ") {
				return fmt.Errorf("want the error of step 4, not: %w", err)
			}
			broken.Store(false)
			if err := r.save(ctx, 6); err != nil {
				return err
			}
			_, err = r.Wait(ctx)
			return err
		}))
		if step, err := latest(disk, 1); later && step != 6 || err != nil {
			t.Errorf("latest is %d: %v", step, err)
		}
	}
}
