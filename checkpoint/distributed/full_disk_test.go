package distributed_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"ddpbatch/checkpoint"
	"ddpbatch/checkpoint/distributed"
	"ddpbatch/internal/testkit"
	"ddpbatch/internal/testkit/thin"
	"ddpbatch/internal/testkit/vfstest"
	"ddpbatch/internal/vfs"
)

// TestFullDiskOfRanks fills a real file system while 3 ranks save full checkpoints and deltas on it. Every
// rank says that the disk is full, what was saved before stays whole, nothing is left over, and once
// there is room again the same Savers go on.
func TestFullDiskOfRanks(t *testing.T) { // without the race detector
	t.Parallel()
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("needs to mount a tmpfs, which takes root: %v", err)
	}
	t.Cleanup(func() { need(t, syscall.Unmount(disk, 0)) })
	path := filepath.Join(disk, "checkpoints")
	filler := filepath.Join(disk, "filler")
	need(t, os.WriteFile(filler, make([]byte, 600<<10), 0o644))
	for i, async := range []bool{false, true} {
		// keeps all: the disk fills up after some saves
		j := job{world: 3, attempt: i + 1, path: path, fs: same(vfs.OS{}), saver: distributed.Options{Async: async, Delta: 2}}
		var full []string
		need(t, j.run(t.Context(), func(r *rank) error {
			ctx := t.Context()
			first, err := r.resume(ctx)
			if err != nil {
				return err
			}
			step, failed := first, error(nil)
			for failed == nil && step < first+200 {
				step++
				if failed = r.save(ctx, step, 0); failed == nil && step%3 == 0 {
					_, failed = r.Wait(ctx)
				}
			}
			if !errors.Is(failed, checkpoint.ErrNoSpace) {
				return fmt.Errorf("step %d: %w, want that there is no space", step, failed)
			}
			if errors.Is(failed, checkpoint.ErrCorrupt) || step < first+2 {
				return fmt.Errorf("step %d: %w", step, failed)
			}
			if _, err := r.Wait(ctx); err != nil && !errors.Is(err, checkpoint.ErrNoSpace) {
				return err
			}
			if r.number == 0 { // nobody writes now
				if _, err := wholeDisk(ctx, vfs.OS{}, path); err != nil {
					return err
				}
				full, _ = filepath.Glob(filepath.Join(path, "step-*", "*"))
				if err := os.Truncate(filler, 0); err != nil {
					return err
				}
			}
			if err := r.save(ctx, step+1, 0); err != nil { // collective: rank 0 has made room before any rank writes
				return fmt.Errorf("after there was room again: %w", err)
			}
			info, err := r.Wait(ctx)
			if err == nil && info.Step != step+1 {
				err = fmt.Errorf("the newest is step %d, want %d", info.Step, step+1)
			}
			return err
		}))
		for _, file := range full {
			if strings.HasSuffix(file, ".tmp") {
				t.Errorf("left over on the full disk: %s", file)
			}
		}
		step, _, err := newestOf(t.Context(), vfs.OS{}, path)
		need(t, err)
		steps, err := wholeDisk(t.Context(), vfs.OS{}, path)
		need(t, err)
		if len(steps) == 0 || steps[len(steps)-1] != step {
			t.Errorf("the newest is %d of %v", step, steps)
		}
		folders, err := filepath.Glob(filepath.Join(path, "step-*"))
		need(t, err)
		if len(folders) != len(steps) {
			t.Errorf("%d folders for %d checkpoints: what did not fit was left over\n%s", len(folders), len(steps), filesBelow(vfs.OS{}, path))
		}
		need(t, os.RemoveAll(path))
		need(t, os.WriteFile(filler, make([]byte, 600<<10), 0o644))
	}
}

// armed makes the k-th operation fail after it has been armed, where that is one that writes.
type armed struct {
	k     int64
	on    atomic.Bool
	seen  atomic.Int64
	fault vfs.Fault
}

func (a *armed) plan(_ int, op vfs.Op) vfs.Fault {
	if !a.on.Load() || a.seen.Add(1) != a.k {
		return vfs.Fault{}
	}
	switch op.Kind {
	case "open", "read", "stat", "readdir", "space", "remove", "rmdir":
		return vfs.Fault{} // not how a full disk shows
	}
	return a.fault
}

// TestFullDiskAtEachOperation has the k-th operation of one rank answer ENOSPC, for every k and rank of
// a save. It fails on all ranks with that error or on none, the checkpoint before it stays, and the
// next save works.
func TestFullDiskAtEachOperation(t *testing.T) { // without the race detector
	t.Parallel()
	for _, fault := range []vfs.Fault{{Err: syscall.ENOSPC}, {AfterErr: syscall.ENOSPC}, {Err: syscall.ENOSPC, Short: 100}} {
		for victim := range 3 {
			for k := int64(1 + victim); ; k += int64(thin.Step(17)) {
				a := &armed{k: k, fault: fault}
				if err := fullAt(t, a, victim); err != nil {
					t.Fatalf("%+v at operation %d of rank %d: %v", fault, k, victim, err)
				}
				if a.seen.Load() < k {
					break // every operation of the saves has had its turn
				}
			}
		}
	}
}

func fullAt(t *testing.T, a *armed, victim int) error {
	const world = 3
	disk := vfstest.New(t)
	in := vfs.NewInjector(disk, a.plan)
	j := job{
		world: world, attempt: 1, keep: checkpoint.Policy{Last: 2},
		saver: distributed.Options{Async: a.k%2 == 0, Delta: 1},
		fs: func(rank int) vfs.FS {
			if rank == victim {
				return in
			}
			return disk
		},
	}
	outcomes := make([]error, world)
	save := func(ctx context.Context, r *rank, step int64) error {
		err := r.save(ctx, step, 0)
		if err == nil {
			_, err = r.Wait(ctx)
		}
		return err
	}
	var err error
	testkit.Within(t, 2*testkit.Patience, func() {
		err = j.run(t.Context(), func(r *rank) error {
			ctx := t.Context()
			if _, err := r.resume(ctx); err != nil {
				return err
			}
			if err := save(ctx, r, 1); err != nil {
				return err
			}
			if r.number == victim {
				a.on.Store(true)
			}
			outcomes[r.number] = save(ctx, r, 2)
			return save(ctx, r, 3)
		})
	})
	for number, outcome := range outcomes {
		if (outcome == nil) != (outcomes[0] == nil) || outcome != nil && !errors.Is(outcome, checkpoint.ErrNoSpace) {
			return fmt.Errorf("rank %d says %w, rank 0 %w", number, outcome, outcomes[0])
		}
	}
	if err != nil && !errors.Is(err, checkpoint.ErrNoSpace) { // the next save may be the one that is hit
		return err
	}
	steps, diskErr := wholeDisk(t.Context(), disk, hardPath)
	if diskErr != nil {
		return diskErr
	}
	newest, want := steps[len(steps)-1], int64(3)
	if err != nil {
		want = 2
	}
	if newest < want && (outcomes[0] == nil || newest < want-1) {
		return fmt.Errorf("step 2 says %w, step 3 %w; the newest is %d", outcomes[0], err, newest)
	}
	return nil
}
