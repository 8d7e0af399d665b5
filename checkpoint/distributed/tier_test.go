package distributed

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/testkit"
	"ddpbatch/internal/testkit/vfstest"
	"ddpbatch/internal/vfs"
)

// Attempt 1 has left step 2 on the nodes' disks. Attempt 2 begins anew, so it must not commit that step as its own newest.
func TestBeginGivesUpWhatIsLeft(t *testing.T) {
	t.Parallel()
	ns := undrained(t)
	mustAll(t, trial{world: 6, attempt: 2, o: Options{Local: localPath}, fs: ns.fs(0)}.run(t.Context(),
		func(ctx context.Context, r *one) error {
			if err := r.Begin(ctx); err != nil {
				return err
			}
			if err := r.save(ctx, 1); err != nil {
				return err
			}
			_, err := r.Wait(ctx)
			return err
		}))
	if step, err := latest(ns.shared, 3); step != 1 || err != nil {
		t.Errorf("attempt 2 began anew and saved step 1; latest is %d (%v)", step, err)
	}
	mustAll(t, trial{world: 6, attempt: 3, o: Options{Local: localPath}, fs: ns.fs(0)}.run(t.Context(), resumesFrom(1)))
}

// resumesFrom returns a function that resumes on one rank and wants to resume from the given step.
func resumesFrom(want int64) func(ctx context.Context, r *one) error {
	return func(ctx context.Context, r *one) error {
		step, err := r.resume(ctx)
		if step != want {
			err = errors.Join(err, fmt.Errorf("resumed from %d, want %d", step, want))
		}
		return err
	}
}

// Two runs with the same name but different shared folders use the same node-local folder. The second run does not use what the first has
// left there.
func TestRunsOfOneNameDoNotMeet(t *testing.T) {
	t.Parallel()
	disk, _ := newDisk(t)
	must(t, errors.Join(disk.Mkdir("/shared/a"), disk.Mkdir("/shared/b"), disk.SyncDir("/shared")))
	full := vfstest.NewInjector(disk, func(_ int, op vfstest.Op) vfstest.Fault {
		if op.Kind == "create" && strings.HasPrefix(op.Path, "/shared/a/") && strings.Contains(op.Path, "/shard-") {
			return vfstest.Fault{Err: syscall.ENOSPC}
		}
		return vfstest.Fault{}
	})
	run := func(path string, attempt int, fsys vfs.FS, f func(r *one) error) error {
		dir, err := checkpoint.Open(path, checkpoint.Options{FS: fsys, Codec: "none", Workers: 1, Run: "same", Attempt: attempt})
		must(t, err)
		r := &one{arrays: arraysOf(0)}
		r.Saver, err = New(t.Context(), newGoroutineGroup(1).member(0), dir, r.arrays, Options{FS: fsys, Local: localPath, Async: true})
		must(t, err)
		return errors.Join(f(r), r.Close())
	}
	err := run("/shared/a", 1, full, func(r *one) error { return r.save(t.Context(), 900) })
	if !errors.Is(err, checkpoint.ErrNoSpace) {
		t.Fatalf("run a: %v", err)
	}
	resume := func(want int64) func(r *one) error {
		return func(r *one) error { return resumesFrom(want)(t.Context(), r) }
	}
	must(t, run("/shared/b", 2, disk, resume(-1)))
	must(t, run("/shared/a", 2, disk, resume(900)))
}

// New refuses a local tier without a run name, since the files of different runs could not be distinguished.
func TestLocalNeedsARunName(t *testing.T) {
	t.Parallel()
	disk, _ := newDisk(t)
	dir, err := checkpoint.Open(sharedPath, checkpoint.Options{FS: disk})
	must(t, err)
	if _, err = New(t.Context(), newGoroutineGroup(1).member(0), dir, arraysOf(0), Options{FS: disk, Local: localPath}); err == nil ||
		!strings.Contains(err.Error(), "run name") {
		t.Errorf("New: %v", err)
	}
}

// If no rank can use the local path, rank 0 logs that once, and the job saves to the shared folder.
func TestWrongLocalPathIsReportedOnce(t *testing.T) {
	t.Parallel()
	disk, _ := newDisk(t)
	var journal testkit.Journal
	fs := func(int) vfs.FS {
		return vfstest.NewInjector(disk, func(_ int, op vfstest.Op) vfstest.Fault {
			if op.Kind == "mkdir" && strings.HasPrefix(op.Path, localPath) {
				return vfstest.Fault{Err: syscall.EACCES}
			}
			return vfstest.Fault{}
		})
	}
	mustAll(t, trial{world: 3, attempt: 1, o: Options{Local: localPath, Log: journal.Logger()}, fs: fs}.run(t.Context(),
		func(ctx context.Context, r *one) error {
			if _, err := r.resume(ctx); err != nil {
				return err
			}
			return errors.Join(r.save(ctx, 1), r.save(ctx, 2))
		}))
	if step, err := latest(disk, 1); step != 2 || err != nil {
		t.Errorf("latest is %d: %v", step, err)
	}
	if log := journal.String(); strings.Count(log, "node-local") != 1 || !strings.Contains(log, `ranks="0, 1, 2"`) {
		t.Errorf("log: %s", log)
	}
}

// If a node is lost, rank 0 logs which shards of the newest save are missing.
func TestLostNodeIsReported(t *testing.T) {
	t.Parallel()
	ns := undrained(t)
	ns.disks = []*vfstest.Mem{ns.disks[0], ns.disks[2]}
	var journal testkit.Journal
	mustAll(t, trial{world: 4, attempt: 2, o: Options{Local: localPath, Log: journal.Logger()},
		fs: ns.fs(0)}.run(t.Context(), resumesFrom(1)))
	if log := journal.String(); strings.Count(log, "incomplete") != 1 || !strings.Contains(log, "step=2") ||
		!strings.Contains(log, `missing="2, 3"`) {
		t.Errorf("log: %s", log)
	}
}

// If several attempts in a row cannot write the manifest, their copies of the shards do not pile up.
func TestFailedCommitOfRecoveredLeavesNothing(t *testing.T) {
	t.Parallel()
	ns := undrained(t)
	fs := func(rank int) vfs.FS {
		return vfstest.NewInjector(ns.fs(0)(rank), func(_ int, op vfstest.Op) vfstest.Fault {
			if op.Kind == "create" && strings.Contains(op.Path, "/MANIFEST") {
				return vfstest.Fault{Err: syscall.EDQUOT}
			}
			return vfstest.Fault{}
		})
	}
	for attempt := 2; attempt < 4; attempt++ {
		errs := trial{world: 6, attempt: attempt, o: Options{Local: localPath}, fs: fs}.run(t.Context(),
			func(ctx context.Context, r *one) error {
				_, err := r.resume(ctx)
				return err
			})
		wantAll(t, errs, checkpoint.ErrNoSpace, "rank 0: commit")
	}
	if files := strings.Join(tree(ns.shared, sharedPath), " "); strings.Contains(files, "step-000000000002") {
		t.Errorf("files stay: %s", files)
	}
	mustAll(t, trial{world: 6, attempt: 4, o: Options{Local: localPath}, fs: ns.fs(0)}.run(t.Context(), resumesFrom(2)))
}

// One rank cannot read a staged shard back from its node's disk. The save fails on all ranks if it is the newest. If there is a newer one,
// that takes its place, and no rank gets an error.
func TestUnreadableStagedSaveFailsIfNewest(t *testing.T) {
	t.Parallel()
	for _, newer := range []bool{false, true} {
		ns := newNodes(t, 2)
		var journal testkit.Journal
		staged := newGate()
		fs := func(rank int) vfs.FS {
			return vfstest.NewInjector(ns.fs(0)(rank), func(_ int, op vfstest.Op) vfstest.Fault {
				if rank == 3 && op.Kind == "open" && strings.HasPrefix(op.Path, localPath) && strings.HasSuffix(op.Path, ".ddpt") &&
					strings.Contains(op.Path, "000001.") {
					if newer {
						staged.passes()
					}
					return vfstest.Fault{Err: syscall.EIO}
				}
				return vfstest.Fault{}
			})
		}
		var arrived atomic.Int32
		errs := trial{world: 4, attempt: 1, o: Options{Async: true, Local: localPath, Log: journal.Logger()}, fs: fs}.run(t.Context(),
			func(ctx context.Context, r *one) error {
				if err := r.save(ctx, 1); err != nil {
					return err
				}
				if newer {
					if err := r.save(ctx, 2); err != nil {
						return err
					}
					if arrived.Add(1) == 4 {
						staged.open()
					}
				}
				info, err := r.Wait(ctx)
				if err == nil && info.Step != 2 {
					err = fmt.Errorf("the newest is %d", info.Step)
				}
				return err
			})
		if !newer {
			wantAll(t, errs, errLocal, "rank 3: node-local disk")
			continue
		}
		mustAll(t, errs)
		if log := journal.String(); !strings.Contains(log, "lost with a node's own disk") {
			t.Errorf("log: %s", log)
		}
	}
}

// An attempt that ends without a save of its own also removes what an earlier one has left on the nodes' disks, since no later attempt will
// resume from that. An attempt that has not begun does not remove it.
func TestEndRemovesWhatEarlierAttemptsLeft(t *testing.T) {
	t.Parallel()
	ns := undrained(t)
	resume := func(attempt int, local string) {
		o := Options{Async: true, Local: local}
		mustAll(t, trial{world: 4, attempt: attempt, o: o, fs: ns.fs(0)}.run(t.Context(), resumesFrom(1)))
	}
	resume(2, "") // this gives up step 2
	o := Options{Async: true, Local: localPath}
	mustAll(t, trial{world: 4, attempt: 3, o: o, fs: ns.fs(0)}.run(t.Context(), func(context.Context, *one) error { return nil }))
	if files := tree(ns.disks[0], localPath); len(files) == 0 {
		t.Fatal("an attempt that has not begun has removed what was left")
	}
	resume(4, localPath)
	for i, disk := range ns.disks {
		if files := tree(disk, localPath); len(files) > 0 {
			t.Errorf("node %d keeps %v", i, files)
		}
	}
}

// A local disk that does not accept files is reported before training, not at the first save. One that is only full is reported as full,
// and may have room later.
func TestLocalDiskIsTriedBeforeTraining(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err  error
		want string
	}{
		{syscall.EROFS, "node-local disk cannot be used"},
		{syscall.EIO, "node-local disk cannot be used"},
		{syscall.ENOSPC, "node-local disk has no room"},
		{nil, ""},
	} {
		disk, _ := newDisk(t)
		fs := func(rank int) vfs.FS {
			return vfstest.NewInjector(disk, func(_ int, op vfstest.Op) vfstest.Fault {
				if rank == 1 && op.Kind == "write" && strings.HasPrefix(op.Path, localPath) {
					return vfstest.Fault{Err: test.err}
				}
				return vfstest.Fault{}
			})
		}
		var journal testkit.Journal
		o := Options{Local: localPath, Log: journal.Logger()}
		mustAll(t, trial{world: 2, attempt: 1, o: o, fs: fs}.run(t.Context(), func(context.Context, *one) error { return nil }))
		log := journal.String()
		if n := strings.Count(log, "level=WARN"); test.want == "" && n != 0 ||
			test.want != "" && (n != 1 || !strings.Contains(log, test.want) || !strings.Contains(log, "ranks=1 ")) {
			t.Errorf("%v: %s", test.err, log)
		}
		if files := tree(disk, localPath); len(files) > 0 {
			t.Errorf("%v: %v stay", test.err, files)
		}
	}
}

// The next attempt removes what an interrupted probe has left.
func TestProbeOfACrashIsSwept(t *testing.T) {
	t.Parallel()
	disk, _ := newDisk(t)
	fs := func(int) vfs.FS {
		return vfstest.NewInjector(disk, func(_ int, op vfstest.Op) vfstest.Fault {
			if op.Kind == "remove" && strings.Contains(op.Path, "probe") && strings.HasPrefix(op.Path, localPath) {
				return vfstest.Fault{Err: vfstest.ErrCrashed}
			}
			return vfstest.Fault{}
		})
	}
	o := Options{Local: localPath}
	begin := func(ctx context.Context, r *one) error { return r.Begin(ctx) }
	mustAll(t, trial{world: 1, attempt: 1, o: o, fs: fs}.run(t.Context(), begin))
	if files := tree(disk, localPath); len(files) != 2 { // the folder and the file in it
		t.Fatalf("%v, want a probe that stays", files)
	}
	mustAll(t, trial{world: 1, attempt: 2, o: o, fs: func(int) vfs.FS { return disk }}.run(t.Context(), begin))
	if files := tree(disk, localPath); len(files) > 0 {
		t.Errorf("%v stay", files)
	}
}

// A rank has made or found the folder of a save. Before it creates its first file there, another rank of its node removes the last shard in
// the folder, and with it the folder. The first rank does not lose its own shard or a replica because of that.
func TestFolderGoesBeforeItsFirstFile(t *testing.T) {
	t.Parallel()
	ns := newNodes(t, 2)
	var own, replicas atomic.Int64 // folders that were removed
	fs := func(rank int) vfs.FS {
		var met sync.Map // the folders that were met; each counts once
		return vfstest.NewInjector(ns.fs(0)(rank), func(_ int, op vfstest.Op) vfstest.Fault {
			folder := filepath.Dir(op.Path)
			if op.Kind != "create" || !strings.HasPrefix(op.Path, localPath) || !strings.HasPrefix(filepath.Base(folder), "step-") {
				return vfstest.Fault{}
			}
			if _, again := met.LoadOrStore(folder, true); again {
				return vfstest.Fault{}
			}
			if err := ns.disks[rank/2].RemoveDir(folder); err != nil { // not empty: it has a file of the other rank
				return vfstest.Fault{}
			}
			if filepath.Base(filepath.Dir(folder)) == "replicas" {
				replicas.Add(1)
			} else {
				own.Add(1)
			}
			return vfstest.Fault{}
		})
	}
	var journal testkit.Journal
	tr, _ := trial{world: 4, attempt: 1, o: Options{Async: true, Log: journal.Logger()}, fs: fs}.replicated()
	errs := tr.run(t.Context(), func(ctx context.Context, r *one) error {
		if err := r.saveAll(ctx, 1); err != nil {
			return err
		}
		ns.full.Store(true) // so the copies stay
		return r.saveAll(ctx, 2)
	})
	wantAll(t, errs, checkpoint.ErrNoSpace, "rank ")
	if own.Load() == 0 || replicas.Load() == 0 {
		t.Errorf("%d folders of shards and %d of replicas went, want some of each", own.Load(), replicas.Load())
	}
	if log := journal.String(); strings.Contains(log, "does not accept") {
		t.Errorf("log: %s", log)
	}
	for i, disk := range ns.disks {
		for _, kind := range []string{"", "/replicas"} {
			if n := len(shardsIn(disk, kind)); n != 2 {
				t.Errorf("node %d keeps %d shards of step 2 in RUN%s, want 2: %v", i, n, kind, tree(disk, localPath))
			}
		}
	}
}

// shardsIn lists the shards in the saves directly below the run's folder or, if part is not empty, below its folder of replicas.
func shardsIn(disk vfs.FS, part string) (shards []string) {
	for _, path := range tree(disk, localPath) {
		run := filepath.Dir(filepath.Dir(path))
		if rest, ok := strings.CutSuffix(run, "/replicas"); ok == (part != "") && filepath.Dir(rest) == localPath &&
			filepath.Ext(path) == ".ddpt" {
			shards = append(shards, path)
		}
	}
	return shards
}

// The disk of a node is full for three saves, accepts one save, and is full again. Every checkpoint is saved, and the log mentions the disk
// twice.
func TestBrokenLocalDiskIsReportedOnce(t *testing.T) {
	t.Parallel()
	disk, _ := newDisk(t)
	var step int64
	fs := func(int) vfs.FS {
		return vfstest.NewInjector(disk, func(_ int, op vfstest.Op) vfstest.Fault {
			if op.Kind == "write" && strings.HasPrefix(op.Path, localPath) && step != 4 {
				return vfstest.Fault{Err: syscall.ENOSPC}
			}
			return vfstest.Fault{}
		})
	}
	var journal testkit.Journal
	mustAll(t, trial{world: 1, attempt: 1, o: Options{Local: localPath, Log: journal.Logger()}, fs: fs}.run(t.Context(),
		func(ctx context.Context, r *one) error {
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
	warnings := 0
	for line := range strings.Lines(journal.String()) {
		if strings.Contains(line, "level=WARN") && strings.Contains(line, "node-local disk does not accept the shard") {
			warnings++
		}
	}
	if warnings != 2 {
		t.Errorf("%d warnings, want 2:\n%s", warnings, journal.String())
	}
}
