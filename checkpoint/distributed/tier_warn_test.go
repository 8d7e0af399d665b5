package distributed

import (
	"context"
	"strings"
	"syscall"
	"testing"

	"ddpbatch/internal/testkit"
	"ddpbatch/internal/vfs"
)

// TestBrokenLocalDiskIsToldOnce: a node's disk takes nothing for three saves, and after one that it took is full again. Every checkpoint is made;
// who watches reads of it twice.
func TestBrokenLocalDiskIsToldOnce(t *testing.T) {
	t.Parallel()
	disk, _ := newDisk(t)
	var step int64
	fs := func(int) vfs.FS {
		return vfs.NewInjector(disk, func(_ int, op vfs.Op) vfs.Fault {
			if op.Kind == "write" && strings.HasPrefix(op.Path, localPath) && step != 4 {
				return vfs.Fault{Err: syscall.ENOSPC}
			}
			return vfs.Fault{}
		})
	}
	var journal testkit.Journal
	mustAll(t, trial{world: 1, attempt: 1, o: Options{Local: localPath, Log: journal.Logger()}, fs: fs}.run(t.Context(), func(ctx context.Context, r *one) error {
		for step = 1; step <= 6; step++ {
			if err := r.save(ctx, step); err != nil {
				return err
			}
			if _, err := r.Wait(ctx); err != nil {
				return err
			}
		}
		return nil
	}))
	if got, err := latest(disk, 1); got != 6 || err != nil {
		t.Errorf("latest is %d: %v", got, err)
	}
	told := 0
	for line := range strings.Lines(journal.String()) {
		if strings.Contains(line, "level=WARN") && strings.Contains(line, "node-local disk does not take the shard") {
			told++
		}
	}
	if told != 2 {
		t.Errorf("%d warnings, want 2:\n%s", told, journal.String())
	}
}
