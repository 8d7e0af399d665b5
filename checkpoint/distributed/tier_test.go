package distributed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/testkit"
	"ddpbatch/internal/vfs"
)

// TestBeginGivesUpWhatIsLeft: attempt 1 has left step 2 undrained. Attempt 2 begins from nothing: it must not commit that as its own newest.
func TestBeginGivesUpWhatIsLeft(t *testing.T) {
	t.Parallel()
	ns := undrained(t)
	mustAll(t, trial{world: 6, attempt: 2, o: Options{Local: localPath}, fs: ns.fs(0)}.run(t.Context(), func(ctx context.Context, r *one) error {
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

// resumesFrom is a job that resumes, and wants that to be from a step.
func resumesFrom(want int64) func(ctx context.Context, r *one) error {
	return func(ctx context.Context, r *one) error {
		step, err := r.resume(ctx)
		if step != want {
			err = errors.Join(err, fmt.Errorf("resumed from %d, want %d", step, want))
		}
		return err
	}
}

// TestRunsOfOneNameDoNotMeet: two runs of the same name in different shared folders use one LOCAL. What the first has left there is not the second's.
func TestRunsOfOneNameDoNotMeet(t *testing.T) {
	t.Parallel()
	disk, _ := newDisk(t)
	must(t, errors.Join(disk.Mkdir("/shared/a"), disk.Mkdir("/shared/b"), disk.SyncDir("/shared")))
	full := vfs.NewInjector(disk, func(_ int, op vfs.Op) vfs.Fault {
		if op.Kind == "create" && strings.HasPrefix(op.Path, "/shared/a/") && strings.Contains(op.Path, "/shard-") {
			return vfs.Fault{Err: syscall.ENOSPC}
		}
		return vfs.Fault{}
	})
	run := func(path string, attempt int, fsys vfs.FS, f func(r *one) error) error {
		dir, err := checkpoint.Open(path, checkpoint.Options{FS: fsys, Codec: "none", Workers: 1, Run: "same", Attempt: attempt})
		must(t, err)
		r := &one{arrays: arraysOf(0)}
		r.Saver, err = New(t.Context(), newMeeting(1).member(0), dir, r.arrays, Options{FS: fsys, Local: localPath, Async: true})
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

// TestLocalNeedsARunName: without one, runs could not be told apart.
func TestLocalNeedsARunName(t *testing.T) {
	t.Parallel()
	disk, _ := newDisk(t)
	dir, err := checkpoint.Open(sharedPath, checkpoint.Options{FS: disk})
	must(t, err)
	if _, err = New(t.Context(), newMeeting(1).member(0), dir, arraysOf(0), Options{FS: disk, Local: localPath}); err == nil || !strings.Contains(err.Error(), "name of the run") {
		t.Errorf("New: %v", err)
	}
}

// TestLocalIsPrivate, on a real disk: what lies in the tier is this user's alone, and a clean end leaves nothing.
func TestLocalIsPrivate(t *testing.T) {
	t.Parallel()
	scratch := t.TempDir()
	r := realTier(t, t.TempDir(), scratch, 1, Options{})
	must(t, r.save(t.Context(), 5))
	info, err := os.Lstat(r.tier.path)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v: %v", info, err)
	}
	must(t, r.Close())
	if left, err := os.ReadDir(scratch); len(left) > 0 || err != nil {
		t.Errorf("after a clean end there are %v, %v", left, err)
	}
}

// TestLocalPathIsWrong: nobody can use it. Rank 0 says so once, and the job saves to the shared folder.
func TestLocalPathIsWrong(t *testing.T) {
	t.Parallel()
	disk, _ := newDisk(t)
	var journal testkit.Journal
	fs := func(int) vfs.FS {
		return vfs.NewInjector(disk, func(_ int, op vfs.Op) vfs.Fault {
			if op.Kind == "mkdir" && strings.HasPrefix(op.Path, localPath) {
				return vfs.Fault{Err: syscall.EACCES}
			}
			return vfs.Fault{}
		})
	}
	mustAll(t, trial{world: 3, attempt: 1, o: Options{Local: localPath, Log: journal.Logger()}, fs: fs}.run(t.Context(), func(ctx context.Context, r *one) error {
		if _, err := r.resume(ctx); err != nil {
			return err
		}
		return errors.Join(r.save(ctx, 1), r.save(ctx, 2))
	}))
	if step, err := latest(disk, 1); step != 2 || err != nil {
		t.Errorf("latest is %d: %v", step, err)
	}
	if log := journal.String(); strings.Count(log, "node-local") != 1 || !strings.Contains(log, "[0 1 2]") {
		t.Errorf("log: %s", log)
	}
}

// TestSearchThatFails: a disk that cannot be searched now may hold a save that was acknowledged. No rank goes on without it; once it can be read
// again the save is there.
func TestSearchThatFails(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"open", "readdir"} {
		ns := undrained(t)
		fs := func(rank int) vfs.FS {
			return vfs.NewInjector(ns.fs(0)(rank), func(_ int, op vfs.Op) vfs.Fault {
				if rank == 1 && op.Kind == kind && strings.HasPrefix(op.Path, localPath) {
					return vfs.Fault{Err: syscall.EMFILE}
				}
				return vfs.Fault{}
			})
		}
		errs := trial{world: 6, attempt: 2, o: Options{Local: localPath}, fs: fs}.run(t.Context(), func(ctx context.Context, r *one) error {
			_, err := r.resume(ctx)
			return err
		})
		wantAll(t, errs, errLocal, "rank 1: node-local disk: search "+localPath)
		mustAll(t, trial{world: 6, attempt: 3, o: Options{Local: localPath}, fs: ns.fs(0)}.run(t.Context(), resumesFrom(2)))
	}
}

// TestLostNodeIsTold: rank 0 says which shards of the newest save are missing.
func TestLostNodeIsTold(t *testing.T) {
	t.Parallel()
	ns := undrained(t)
	ns.disks = []*vfs.Mem{ns.disks[0], ns.disks[2]}
	var journal testkit.Journal
	mustAll(t, trial{world: 4, attempt: 2, o: Options{Local: localPath, Log: journal.Logger()}, fs: ns.fs(0)}.run(t.Context(), resumesFrom(1)))
	if log := journal.String(); strings.Count(log, "not whole") != 1 || !strings.Contains(log, "step=2") || !strings.Contains(log, `missing="[2 3]"`) {
		t.Errorf("log: %s", log)
	}
}

// TestFailedCommitOfRemainsLeavesNothing: attempt after attempt cannot write the manifest; the shards do not pile up.
func TestFailedCommitOfRemainsLeavesNothing(t *testing.T) {
	t.Parallel()
	ns := undrained(t)
	fs := func(rank int) vfs.FS {
		return vfs.NewInjector(ns.fs(0)(rank), func(_ int, op vfs.Op) vfs.Fault {
			if op.Kind == "create" && strings.Contains(op.Path, "/MANIFEST") {
				return vfs.Fault{Err: syscall.EDQUOT}
			}
			return vfs.Fault{}
		})
	}
	for attempt := 2; attempt < 4; attempt++ {
		errs := trial{world: 6, attempt: attempt, o: Options{Local: localPath}, fs: fs}.run(t.Context(), func(ctx context.Context, r *one) error {
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

// TestShardsOfANodeAreDealtOut: the two ranks of a node copy one shard each.
func TestShardsOfANodeAreDealtOut(t *testing.T) {
	t.Parallel()
	ns := undrained(t)
	var copies [4]atomic.Int32
	fs := func(rank int) vfs.FS {
		return vfs.NewInjector(ns.fs(0)(rank), func(_ int, op vfs.Op) vfs.Fault {
			if op.Kind == "create" && strings.Contains(op.Path, "/shard-") && strings.HasPrefix(op.Path, sharedPath) {
				copies[rank].Add(1)
			}
			return vfs.Fault{}
		})
	}
	mustAll(t, trial{world: 4, attempt: 2, o: Options{Local: localPath}, fs: fs}.run(t.Context(), resumesFrom(2)))
	for rank := range copies {
		if n := copies[rank].Load(); n != 1 {
			t.Errorf("rank %d has copied %d shards", rank, n)
		}
	}
}

// TestDeal: the larger shards go to different ranks, and no rank gets one that it does not see.
func TestDeal(t *testing.T) {
	t.Parallel()
	l := leftover{
		seen:  []sight{{own: []int{0, 1}}, {own: []int{0, 1}, replica: []int{2, 3}}, {replica: []int{2}}, {own: []int{0, 1}}},
		sizes: []int64{100, 10, 5, 20},
	}
	want := [][]holder{{{Rank: 0}}, {{Rank: 1}, {Rank: 2, Replica: true}}, {{Rank: 2, Replica: true}}, {{Rank: 1}}}
	if got := l.deal(); !reflect.DeepEqual(got, want) {
		t.Errorf("dealt to %v, want %v", got, want)
	}
}

// TestLocalDiskBreaksAfterStaging: what it has taken cannot be read back. The save fails on all ranks if it is the newest; where a newer one is
// there, that takes its place and nobody gets an error.
func TestLocalDiskBreaksAfterStaging(t *testing.T) {
	t.Parallel()
	for _, newer := range []bool{false, true} {
		ns := newNodes(t, 2)
		var journal testkit.Journal
		staged := newGate()
		fs := func(rank int) vfs.FS {
			return vfs.NewInjector(ns.fs(0)(rank), func(_ int, op vfs.Op) vfs.Fault {
				if rank == 3 && op.Kind == "open" && strings.HasPrefix(op.Path, localPath) && strings.HasSuffix(op.Path, ".ddpt") && strings.Contains(op.Path, "000001.") {
					if newer {
						staged.passes()
					}
					return vfs.Fault{Err: syscall.EIO}
				}
				return vfs.Fault{}
			})
		}
		var arrived atomic.Int32
		errs := trial{world: 4, attempt: 1, o: Options{Async: true, Local: localPath, Log: journal.Logger()}, fs: fs}.run(t.Context(), func(ctx context.Context, r *one) error {
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

// TestEndTidiesUp: an attempt that ends without a save of its own removes what an earlier one has left on the nodes' disks, too, as nobody will
// go on from that any more; one that has not got as far as to begin does not.
func TestEndTidiesUp(t *testing.T) {
	t.Parallel()
	ns := undrained(t)
	resume := func(attempt int, local string) {
		o := Options{Async: true, Local: local}
		mustAll(t, trial{world: 4, attempt: attempt, o: o, fs: ns.fs(0)}.run(t.Context(), resumesFrom(1)))
	}
	resume(2, "") // which gives up step 2
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

// TestLocalDiskIsTried: a disk that takes no file is told of before training, and not at the first save; one that is only full is told of as
// full, and may have room later.
func TestLocalDiskIsTried(t *testing.T) {
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
			return vfs.NewInjector(disk, func(_ int, op vfs.Op) vfs.Fault {
				if rank == 1 && op.Kind == "write" && strings.HasPrefix(op.Path, localPath) {
					return vfs.Fault{Err: test.err}
				}
				return vfs.Fault{}
			})
		}
		var journal testkit.Journal
		o := Options{Local: localPath, Log: journal.Logger()}
		mustAll(t, trial{world: 2, attempt: 1, o: o, fs: fs}.run(t.Context(), func(context.Context, *one) error { return nil }))
		if n := strings.Count(journal.String(), "level=WARN"); test.want == "" && n != 0 ||
			test.want != "" && (n != 1 || !strings.Contains(journal.String(), test.want) || !strings.Contains(journal.String(), "ranks=[1]")) {
			t.Errorf("%v: %s", test.err, journal.String())
		}
		if files := tree(disk, localPath); len(files) > 0 {
			t.Errorf("%v: %v stay", test.err, files)
		}
	}
}

// TestProbeOfACrashIsSwept: what a probe that was cut short has left does not stay for ever.
func TestProbeOfACrashIsSwept(t *testing.T) {
	t.Parallel()
	disk, _ := newDisk(t)
	fs := func(int) vfs.FS {
		return vfs.NewInjector(disk, func(_ int, op vfs.Op) vfs.Fault {
			if op.Kind == "remove" && strings.Contains(op.Path, "probe") && strings.HasPrefix(op.Path, localPath) {
				return vfs.Fault{Err: vfs.ErrCrashed}
			}
			return vfs.Fault{}
		})
	}
	o := Options{Local: localPath}
	begin := func(ctx context.Context, r *one) error { return r.Begin(ctx) }
	mustAll(t, trial{world: 1, attempt: 1, o: o, fs: fs}.run(t.Context(), begin))
	if files := tree(disk, localPath); len(files) != 2 { // the folder and what is in it
		t.Fatalf("%v, want a probe that stays", files)
	}
	mustAll(t, trial{world: 1, attempt: 2, o: o, fs: func(int) vfs.FS { return disk }}.run(t.Context(), begin))
	if files := tree(disk, localPath); len(files) > 0 {
		t.Errorf("%v stay", files)
	}
}
