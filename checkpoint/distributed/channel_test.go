package distributed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/failure"
	"ddpbatch/internal/testkit"
	"ddpbatch/internal/testkit/thin"
	"ddpbatch/internal/testkit/vfstest"
	"ddpbatch/internal/vfs"
)

// impatient is a member whose collectives fail after a time, as those of package mpi do after Config.Timeout.
type impatient struct {
	*member
	patience time.Duration
}

func (g impatient) Gather(ctx context.Context, payload []byte) ([][]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, g.patience)
	defer cancel()
	return g.member.Gather(ctx, payload)
}

func (g impatient) Broadcast(ctx context.Context, payload []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, g.patience)
	defer cancel()
	return g.member.Broadcast(ctx, payload)
}

// TestSlowDiskOutlastsNoCollective gives one rank a disk that takes a minute to create a file or list a folder, while a collective fails
// after three seconds. New, Resume, the flush of what is left, Save and Wait must all succeed. The test runs in virtual time.
func TestSlowDiskOutlastsNoCollective(t *testing.T) {
	for slow := range 3 {
		synctest.Test(t, func(t *testing.T) {
			ns := undrained(t)
			m := newGoroutineGroup(6)
			began := time.Now()
			done := make(chan error, 6)
			for rank := range 6 {
				go func() {
					fsys := vfstest.NewInjector(ns.fs(0)(rank), func(_ int, op vfstest.Op) vfstest.Fault {
						if rank == slow && (op.Kind == "create" || op.Kind == "readdir") {
							time.Sleep(time.Minute)
						}
						return vfstest.Fault{}
					})
					done <- overSlowDisk(t.Context(), impatient{m.member(rank), roundEvery + time.Second}, fsys)
				}()
			}
			for range 6 {
				must(t, <-done)
			}
			if took := time.Since(began); took < 4*time.Minute {
				t.Errorf("all took %v: the disk was not slow", took)
			}
		})
	}
}

func overSlowDisk(ctx context.Context, g impatient, fsys vfs.FS) error {
	var dir *checkpoint.Dir
	if g.rank == 0 {
		var err error
		if dir, err = checkpoint.Open(sharedPath,
			checkpoint.Options{FS: fsys, Codec: "none", Run: "trial", Attempt: 2, Workers: 1}); err != nil {
			return err
		}
	}
	r := &one{rank: g.rank, arrays: arraysOf(g.rank)}
	var err error
	if r.Saver, err = New(ctx, g, dir, r.arrays, Options{FS: fsys, Local: localPath}); err != nil {
		return err
	}
	if err = resumesFrom(2)(ctx, r); err == nil {
		err = r.save(ctx, 3)
	}
	if err == nil {
		_, err = r.Wait(ctx)
	}
	return errors.Join(err, r.Close())
}

// garbler is a member whose messages no rank can decode.
type garbler struct{ *member }

func (g garbler) Gather(ctx context.Context, payload []byte) ([][]byte, error) {
	return g.member.Gather(ctx, payload[:len(payload)/2])
}

// If rank 0 cannot decode a message, all ranks get an error, and no rank waits forever for its answer.
func TestUnreadableMessageHangsNoRank(t *testing.T) {
	t.Parallel()
	m := newGoroutineGroup(3)
	errs := make(chan error, 3)
	for rank := range 3 {
		go func() {
			var g Group = m.member(rank)
			if rank == 2 {
				g = garbler{m.member(rank)}
			}
			_, err := exchange(t.Context(), newChannel(g, nil), []int{1, 2, 3}, nil, func([][]int) (int, error) { return 7, nil })
			errs <- err
		}()
	}
	for range 3 {
		if err := <-errs; err == nil || !strings.Contains(err.Error(), "rank 0: decode the message of rank 2") {
			t.Errorf("error %v", err)
		}
	}
}

// If a rank has an error of two classes, all ranks, itself included, see an error of the same one class, so all ranks take the same course.
func TestErrorOfTwoClassesIsOfOneOnAllRanks(t *testing.T) {
	t.Parallel()
	for guilty := range 2 {
		_, fs := newDisk(t)
		mustAll(t, trial{world: 2, attempt: 1, fs: fs}.run(t.Context(), func(ctx context.Context, r *one) error { return r.save(ctx, 10) }))
		errs := trial{world: 2, attempt: 2, fs: fs}.run(t.Context(), func(ctx context.Context, r *one) error {
			_, err := r.Resume(ctx, func(*checkpoint.Checkpoint) error {
				if r.rank == guilty {
					return fmt.Errorf("%w: %w", checkpoint.ErrStale, &checkpoint.CorruptError{Path: "x"})
				}
				return nil
			})
			return err
		})
		wantAll(t, errs, checkpoint.ErrStale, fmt.Sprintf("rank %d: ", guilty))
		for rank, err := range errs {
			if errors.Is(err, checkpoint.ErrCorrupt) {
				t.Errorf("rank %d has an error that the others have not: %v", rank, err)
			}
		}
	}
}

// On the rank where an error occurred, everything in it that does not have a class can still be found with errors.As.
func TestOwnErrorStaysWhole(t *testing.T) {
	t.Parallel()
	ch := newChannel(newGoroutineGroup(2).member(1), nil)
	own := fmt.Errorf("reading: %w", &checkpoint.CorruptError{Path: "p", Detail: "d"})
	text, err := json.Marshal(ch.failureOf(own))
	must(t, err)
	var f failure.Failure
	must(t, json.Unmarshal(text, &f))
	err = ch.error(&f, own)
	if e, ok := errors.AsType[*checkpoint.CorruptError](err); !ok || e.Path != "p" || !errors.Is(err, checkpoint.ErrCorrupt) {
		t.Errorf("%v", err)
	}
	if again := ch.failureOf(fmt.Errorf("resume: %w", err)); *again != f {
		t.Errorf("the second time it is %+v, first %+v", *again, f)
	}
}

// The rank where a save failed and rank 0 report the whole error, which contains the path once. The other ranks report a short line.
func TestFailureIsReportedOnce(t *testing.T) {
	t.Parallel()
	for name, async := range map[string]bool{"sync": false, "async": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			disk, _ := newDisk(t)
			full := vfstest.NewInjector(disk, func(_ int, op vfstest.Op) vfstest.Fault {
				if op.Kind == "write" && strings.Contains(op.Path, "shard-") {
					return vfstest.Fault{Err: syscall.ENOSPC}
				}
				return vfstest.Fault{}
			})
			fs := func(rank int) vfs.FS {
				if rank == 1 {
					return full
				}
				return disk
			}
			var journal testkit.Journal
			errs := trial{world: 4, attempt: 1, o: Options{Async: async, Log: journal.Logger()}, fs: fs}.run(t.Context(),
				func(ctx context.Context, r *one) error {
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
				want = 1 // Save has returned, so no rank knows of the failure yet
			}
			if got := strings.Count(journal.String(), "no space left"); got != want {
				t.Errorf("the log has it %d times, want %d: %s", got, want, journal.String())
			}
		})
	}
}

// TestDeathAtEveryCollectiveHangsNoRank makes a rank die, or cancels the context, before the rank's k-th collective, for every k. No rank
// may hang, and what was acknowledged must be there.
func TestDeathAtEveryCollectiveHangsNoRank(t *testing.T) { // also without the race detector
	t.Parallel()
	for _, o := range []Options{{Async: true}, {}, {Async: true, Local: localPath}} {
		for victim := range 3 {
			sparse := 1 + thin.Step(10) // each rank has other crash points
			for k := 1 + victim%sparse; ; k += sparse {
				if !dies(t, o, victim, k) {
					break
				}
			}
		}
	}
}

// dies reports whether the victim reached its k-th collective.
func dies(t *testing.T, o Options, victim, k int) (reached bool) {
	disk, fs := newDisk(t)
	m := newGoroutineGroup(3)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	m.fault = func(rank, call int) error {
		if rank != victim || call != k {
			return nil
		}
		reached = true
		if k%2 == 0 {
			cancel()
			return nil
		}
		return errDead
	}
	var acknowledged atomic.Int64
	acknowledged.Store(-1)
	testkit.Within(t, testkit.Patience, func() {
		trial{world: 3, attempt: 1, o: o, fs: fs, group: m}.run(ctx, func(ctx context.Context, r *one) error {
			for step := int64(1); step <= 2; step++ {
				if err := r.save(ctx, step); err != nil {
					return err
				}
				info, err := r.Wait(ctx)
				if err != nil {
					return err
				}
				acknowledged.Store(info.Step)
			}
			return nil
		})
	})
	step, err := latest(disk, 1)
	if err != nil || step < acknowledged.Load() {
		t.Fatalf("rank %d dies at %d: step %d was acknowledged, the latest is %d: %v", victim, k, acknowledged.Load(), step, err)
	}
	return reached
}
