package distributed

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/vfs"
)

// TestProbeOfOneRank lets each rank in turn be the one that cannot write to the shared folder, in every way: then New fails on all ranks,
// before anybody trains, with its number and why.
func TestProbeOfOneRank(t *testing.T) {
	t.Parallel()
	const world = 3
	for _, kind := range []string{"create", "write", "sync", "rename", "read", "remove", "syncdir"} {
		for victim := range world {
			disk, _ := newDisk(t)
			full := vfs.NewInjector(disk, func(_ int, op vfs.Op) vfs.Fault {
				if op.Kind == kind && strings.HasPrefix(op.Path, sharedPath) {
					return vfs.Fault{Err: syscall.ENOSPC}
				}
				return vfs.Fault{}
			})
			errs := trial{world: world, attempt: 1, fs: func(rank int) vfs.FS {
				if rank == victim {
					return full
				}
				return disk
			}}.run(t.Context(), func(context.Context, *one) error { return errors.New("New has succeeded") })
			for rank, err := range errs {
				if !errors.Is(err, checkpoint.ErrNoSpace) || !strings.HasPrefix(err.Error(), "prepare checkpoints: ") ||
					!strings.Contains(err.Error(), fmt.Sprintf("rank %d: ", victim)) || !strings.Contains(err.Error(), "cannot save in "+sharedPath) {
					t.Errorf("%s fails on rank %d: rank %d: %v", kind, victim, rank, err)
				}
			}
		}
	}
}
