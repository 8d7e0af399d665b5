package distributed_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path"
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

// threeSteps saves steps 1 to 3 with two ranks. Between full checkpoints there are up to the given number of deltas.
func threeSteps(t *testing.T, delta int) *vfstest.Mem {
	disk := vfstest.New(t)
	j := job{world: 2, attempt: 1, fs: same(disk), saver: distributed.Options{Delta: delta}}
	need(t, j.run(t.Context(), func(r *rank) error {
		if _, err := r.resume(t.Context()); err != nil {
			return err
		}
		for step := int64(1); step <= 3; step++ {
			if err := r.save(t.Context(), step, 1); err != nil {
				return err
			}
		}
		return nil
	}))
	return disk
}

// TestFaultsWhileResumingCostNothing makes one operation of one rank fail while a job resumes, for every operation. The job must resume
// from the newest checkpoint or not at all: it does not give up a checkpoint that it cannot read, and does not rename any as broken.
func TestFaultsWhileResumingCostNothing(t *testing.T) { // without the race detector
	t.Parallel()
	for _, fault := range []error{syscall.EIO, syscall.ESTALE, syscall.EACCES} {
		for victim := range 2 {
			disk := threeSteps(t, victim)
			for k := int64(1 + victim); ; k += int64(thin.Step(7)) {
				var seen atomic.Int64
				in := vfstest.NewInjector(disk, func(int, vfstest.Op) vfstest.Fault {
					if seen.Add(1) == k {
						return vfstest.Fault{Err: fault}
					}
					return vfstest.Fault{}
				})
				j := job{world: 2, attempt: 2, fs: func(rank int) vfs.FS {
					if rank == victim {
						return in
					}
					return disk
				}}
				var from int64
				err := j.run(t.Context(), func(r *rank) error {
					step, err := r.resume(t.Context())
					if r.number == 0 {
						from = step
					}
					return err
				})
				if err == nil && from != 3 || errors.Is(err, checkpoint.ErrCorrupt) {
					t.Fatalf("%v at operation %d of rank %d: resumed from %d, %v", fault, k, victim, from, err)
				}
				if files := filesBelow(disk, hardPath); strings.Contains(files, ".broken") {
					t.Fatalf("%v at operation %d of rank %d: something is called broken\n%s", fault, k, victim, files)
				}
				if seen.Load() < k {
					break
				}
			}
		}
	}
}

// liar is a file system that flips a bit in each of the next left reads of a shard in a folder.
type liar struct {
	vfs.FS
	folder string
	left   *atomic.Int64
}

type lyingFile struct {
	vfs.File
	l liar
}

func (l liar) Open(name string) (vfs.File, error) {
	f, err := l.FS.Open(name)
	if err != nil || path.Base(path.Dir(name)) != l.folder || !strings.HasPrefix(path.Base(name), "shard-") {
		return f, err
	}
	return lyingFile{f, l}, nil
}

func (f lyingFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(p, off)
	if n > 0 && off >= 64 && f.l.left.Add(-1) >= 0 { // after the header, where Find does not read
		p[n/2] ^= 4
	}
	return n, err
}

// If one rank reads wrong bytes once and the right bytes after that, because a bit was flipped in transit and not on the disk, the job
// still resumes from the newest checkpoint.
func TestPassingCorruptionCostsNothing(t *testing.T) { // without the race detector
	t.Parallel()
	for victim := range 2 {
		disk := threeSteps(t, 0)
		lies := &atomic.Int64{}
		j := job{world: 2, attempt: 2, fs: func(rank int) vfs.FS {
			if rank == victim {
				return liar{disk, "step-000000000003", lies}
			}
			return disk
		}}
		need(t, j.run(t.Context(), func(r *rank) error {
			first := true
			c, err := r.Resume(t.Context(), func(c *checkpoint.Checkpoint) error {
				if first && r.number == victim {
					lies.Store(1) // in the table or the data, whichever is read next
				}
				first = false
				return checkOwn(t.Context(), c, r.number)
			})
			if err != nil {
				return err
			}
			if c.Step() != 3 {
				err = fmt.Errorf("resumed from step %d, want 3", c.Step())
			}
			return errors.Join(err, c.Close())
		}))
		if lies.Load() > 0 {
			t.Errorf("rank %d read nothing wrong: the test tests nothing", victim)
		}
		if files := filesBelow(disk, hardPath); strings.Contains(files, ".broken") {
			t.Errorf("rank %d read wrong once, and something is called broken\n%s", victim, files)
		}
	}
}

// TestCrashWithLocalTierLosesNothing saves to the nodes' own disks first, crashes after each operation, and resumes with the same or
// another number of ranks. Nothing that Save has acknowledged may be lost.
func TestCrashWithLocalTierLosesNothing(t *testing.T) { // without the race detector
	t.Parallel()
	count := vfstest.NewInjector(vfstest.New(t), nil)
	_, err := localJob(t, count, nil)
	need(t, err)
	operations := len(count.Log())
	for k, err := range testkit.Each(operations, func(k int) error {
		if k%thin.Step(17) > 0 {
			return nil
		}
		disk := vfstest.NewMem()
		if err := errors.Join(disk.Mkdir("/run"), disk.SyncDir("/")); err != nil {
			return err
		}
		acknowledged, err := localJob(t, disk, vfstest.CrashAfter(k)) // only the job crashes: the next one finds the same disks
		if err != nil && !crashWords(err) {
			return err
		}
		if k%4 < 2 { // the power was cut, too
			disk = disk.CrashClone(10, rand.New(rand.NewPCG(uint64(k), 0)))
		}
		world := 3 - k%2 // 3 ranks or 2
		j := job{world: world, attempt: 2, fs: same(disk), saver: distributed.Options{Local: "/local"}}
		var from int64
		err = j.run(t.Context(), func(r *rank) error {
			step, err := r.resume(t.Context())
			if r.number == 0 {
				from = step
			}
			return err
		})
		if err != nil {
			return err
		}
		if from < acknowledged || from > acknowledged+1 {
			return fmt.Errorf("%d ranks resumed from step %d, %d was acknowledged\n%s%s", world, from, acknowledged,
				filesBelow(disk, "/local"), filesBelow(disk, hardPath))
		}
		_, err = wholeDisk(t.Context(), disk, hardPath)
		return err
	}) {
		if err != nil {
			t.Fatalf("crash after operation %d of %d: %v", k, operations, err)
		}
	}
}

// localJob saves steps 1 to 3 with 3 ranks through the node-local tier /local, and returns the step that was acknowledged last.
func localJob(t *testing.T, disk vfs.FS, plan func(int, vfstest.Op) vfstest.Fault) (acknowledged int64, err error) {
	j := job{world: 3, attempt: 1, fs: same(vfstest.NewInjector(disk, plan)), saver: distributed.Options{Local: "/local"}}
	err = j.run(t.Context(), func(r *rank) error {
		if _, err := r.resume(t.Context()); err != nil {
			return err
		}
		for step := int64(1); step <= 3; step++ {
			if err := r.save(t.Context(), step, 1); err != nil {
				return err
			}
			if r.number == 0 {
				acknowledged = step
			}
		}
		_, err := r.Wait(t.Context())
		return err
	})
	return acknowledged, err
}

// A run with a damaged lineage record starts, with or without a local tier.
func TestStartsDespiteADamagedRecord(t *testing.T) { // without the race detector
	t.Parallel()
	for _, local := range []string{"", "/local"} {
		disk := threeSteps(t, 0)
		entries, err := disk.ReadDir(hardPath)
		need(t, err)
		name := hardPath + "/" + entries[0].Name() // names of records come before those of checkpoints
		if !strings.Contains(name, "/attempt-000000001-") {
			t.Fatalf("%s is not the record", name)
		}
		need(t, disk.Remove(name))
		f, err := disk.Create(name)
		need(t, err)
		_, err = f.Write([]byte("damaged"))
		need(t, err)
		need(t, f.Close())
		j := job{world: 2, attempt: 2, fs: same(disk), saver: distributed.Options{Local: local}}
		if err := j.run(t.Context(), func(r *rank) error { _, err := r.resume(t.Context()); return err }); err != nil {
			t.Errorf("local tier %q: %v", local, err)
		}
	}
}

// TestFullDiskSparesEarlierSavesOfRanks fills a real file system while 3 ranks save full checkpoints and deltas on it. Every rank must
// report that the disk is full, earlier saves must stay whole, and nothing may be left over. Once there is room again, the same Savers must
// be able to save.
func TestFullDiskSparesEarlierSavesOfRanks(t *testing.T) { // without the race detector
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
		// The job keeps all checkpoints, so the disk fills up after some saves.
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
				return fmt.Errorf("step %d: %w, want the error that no space is left", step, failed)
			}
			if errors.Is(failed, checkpoint.ErrCorrupt) || step < first+2 {
				return fmt.Errorf("step %d: %w", step, failed)
			}
			if _, err := r.Wait(ctx); err != nil && !errors.Is(err, checkpoint.ErrNoSpace) {
				return err
			}
			if r.number == 0 { // no rank writes now
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
			t.Errorf("%d folders for %d checkpoints: what did not fit was left over\n%s", len(folders), len(steps),
				filesBelow(vfs.OS{}, path))
		}
		need(t, os.RemoveAll(path))
		need(t, os.WriteFile(filler, make([]byte, 600<<10), 0o644))
	}
}

// armed makes the k-th operation after it is switched on fail, if that operation writes.
type armed struct {
	k     int64
	on    atomic.Bool
	seen  atomic.Int64
	fault vfstest.Fault
}

func (a *armed) plan(_ int, op vfstest.Op) vfstest.Fault {
	if !a.on.Load() || a.seen.Add(1) != a.k {
		return vfstest.Fault{}
	}
	switch op.Kind {
	case "open", "read", "stat", "readdir", "space", "remove", "rmdir":
		return vfstest.Fault{} // a full disk does not make these fail
	}
	return a.fault
}

// TestFullDiskFailsAllRanksOrNone makes the k-th operation of one rank fail with ENOSPC, for every k and every rank of a save. The save
// must fail on all ranks with that error or on none, the checkpoint before it must stay, and the next save must work unless it is the one
// that is hit.
func TestFullDiskFailsAllRanksOrNone(t *testing.T) { // without the race detector
	t.Parallel()
	for _, fault := range []vfstest.Fault{{Err: syscall.ENOSPC}, {AfterErr: syscall.ENOSPC}, {Err: syscall.ENOSPC, Short: 100}} {
		for victim := range 3 {
			for k := int64(1 + victim); ; k += int64(thin.Step(17)) {
				a := &armed{k: k, fault: fault}
				if err := fullAt(t, a, victim); err != nil {
					t.Fatalf("%+v at operation %d of rank %d: %v", fault, k, victim, err)
				}
				if a.seen.Load() < k {
					break // every operation of the saves has failed once
				}
			}
		}
	}
}

func fullAt(t *testing.T, a *armed, victim int) error {
	const world = 3
	disk := vfstest.New(t)
	in := vfstest.NewInjector(disk, a.plan)
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
	if err != nil && !errors.Is(err, checkpoint.ErrNoSpace) { // the fault may hit the next save
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
