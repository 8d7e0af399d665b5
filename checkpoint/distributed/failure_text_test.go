package distributed

import (
	"context"
	"strings"
	"syscall"
	"testing"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/testkit"
	"ddpbatch/internal/vfs"
)

// TestFailureIsToldOnce: the rank where a save failed and rank 0 tell it whole, the others in a short line; the path is in it once.
func TestFailureIsToldOnce(t *testing.T) {
	t.Parallel()
	for name, async := range map[string]bool{"sync": false, "async": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			disk, _ := newDisk(t)
			full := vfs.NewInjector(disk, func(_ int, op vfs.Op) vfs.Fault {
				if op.Kind == "write" && strings.Contains(op.Path, "shard-") {
					return vfs.Fault{Err: syscall.ENOSPC}
				}
				return vfs.Fault{}
			})
			fs := func(rank int) vfs.FS {
				if rank == 1 {
					return full
				}
				return disk
			}
			var journal testkit.Journal
			errs := trial{world: 4, attempt: 1, o: Options{Async: async, Log: journal.Logger()}, fs: fs}.run(t.Context(), func(ctx context.Context, r *one) error {
				if err := r.save(ctx, 7); err != nil {
					return err
				}
				_, err := r.Wait(ctx)
				return err
			})
			wantAll(t, errs, checkpoint.ErrNoSpace, "rank 1: ")
			for rank, err := range errs {
				text := err.Error()
				switch whole := strings.Contains(text, "no space left on device") && strings.Contains(text, sharedPath); {
				case rank < 2 && (!whole || strings.Count(text, sharedPath) > 1 || strings.Count(text, "step") > 2):
					t.Errorf("rank %d: %q", rank, text)
				case rank >= 2 && (whole || len(text) > 100 || !strings.Contains(text, "see the output of rank 0")):
					t.Errorf("rank %d repeats it: %q", rank, text)
				}
			}
			want := 0
			if async {
				want = 1 // nobody has heard of it yet
			}
			if got := strings.Count(journal.String(), "no space left"); got != want {
				t.Errorf("the log tells it %d times, want %d: %s", got, want, journal.String())
			}
		})
	}
}
