package distributed

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/testkit"
	"ddpbatch/internal/testkit/vfstest"
	"ddpbatch/internal/vfs"
)

// modes returns the ways of saving. They all make the same promises.
func modes() map[string]Options {
	return map[string]Options{
		"sync":          {},
		"async":         {Async: true},
		"delta":         {Async: true, Delta: 2},
		"sync delta":    {Delta: 1},
		"no memory":     {Async: true, Delta: 2, MaxMemory: 1},
		"local":         {Async: true, Local: localPath},
		"local, sync":   {Local: localPath},
		"local, delta":  {Async: true, Delta: 3, Local: localPath},
		"async, zstd 4": {Async: true, Workers: 4},
	}
}

func TestResumeLoadsWhatWasSaved(t *testing.T) {
	t.Parallel()
	for name, o := range modes() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			disk, fs := newDisk(t)
			mustAll(t, trial{world: 4, attempt: 1, o: o, fs: fs}.run(t.Context(), func(ctx context.Context, r *one) error {
				if step, err := r.resume(ctx); err != nil || step != -1 {
					return fmt.Errorf("resumed from %d: %w", step, err)
				}
				for step := int64(1); step <= 7; step++ {
					if err := r.save(ctx, step); err != nil {
						return err
					}
				}
				info, err := r.Wait(ctx)
				if err == nil && (info.Step != 7 || !info.Committed || info.World != 4) {
					err = fmt.Errorf("the newest is %+v", info)
				}
				return err
			}))
			if step, err := latest(disk, 1); step != 7 || err != nil {
				t.Fatalf("latest is %d: %v", step, err)
			}
			mustAll(t, trial{world: 3, attempt: 2, o: o, fs: fs}.run(t.Context(), func(ctx context.Context, r *one) error {
				if step, err := r.resume(ctx); err != nil || step != 7 {
					return fmt.Errorf("resumed from %d: %w", step, err)
				}
				return nil
			}))
			if files := tree(disk, localPath); len(files) > 0 {
				t.Errorf("flushed shards stay: %v", files)
			}
		})
	}
}

func TestDeltasComeBetweenFullOnes(t *testing.T) {
	t.Parallel()
	disk, fs := newDisk(t)
	mustAll(t, trial{world: 2, attempt: 1, codec: "auto", o: Options{Async: true, Delta: 2}, fs: fs}.run(t.Context(),
		func(ctx context.Context, r *one) error {
			for step := int64(1); step <= 7; step++ {
				if err := r.save(ctx, step); err != nil {
					return err
				}
				info, err := r.Wait(ctx)
				if err != nil {
					return err
				}
				if full := info.BaseStep < 0; full != (step%3 == 1) {
					return fmt.Errorf("step %d: full is %v", step, full)
				}
			}
			return nil
		}))
	d, err := checkpoint.Open(sharedPath, checkpoint.Options{FS: disk, Run: "trial"})
	must(t, err)
	list, err := d.List(t.Context())
	must(t, err)
	if len(list) != 7 {
		t.Fatalf("%d checkpoints", len(list))
	}
	for i, info := range list {
		step := int64(i + 1)
		if want := map[int64]int64{1: -1, 2: 1, 3: 1, 4: -1, 5: 4, 6: 4, 7: -1}[step]; info.BaseStep != want {
			t.Errorf("the base of step %d is %d, want %d", step, info.BaseStep, want)
		}
		c, err := d.Find(t.Context(), step)
		must(t, err)
		must(t, check(c))
		must(t, c.Close())
	}
	if full, delta := list[0].Bytes, list[1].Bytes; delta > full*3/4 { // 15 of 16 bytes are the same
		t.Errorf("a delta takes %d bytes, a full one %d", delta, full)
	}
}

// If the shard of one rank, or the manifest of rank 0, cannot be written, every rank gets an error of the same class from that call or the
// next. Nothing stays on the disk, and the save after that is good.
func TestErrorsReachAllRanks(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		errno syscall.Errno
		class error
		rank  int
		file  string
	}{
		{syscall.ENOSPC, checkpoint.ErrNoSpace, 2, "shard-00002"},
		{syscall.EDQUOT, checkpoint.ErrNoSpace, 0, "shard-00000"},
		{syscall.EACCES, checkpoint.ErrPermission, 0, "MANIFEST"},
		{syscall.EROFS, checkpoint.ErrPermission, 1, "shard-00001"},
	} {
		for name, o := range map[string]Options{"async": {Async: true}, "sync": {}, "delta": {Async: true, Delta: 3}} {
			t.Run(fmt.Sprint(test.errno, " ", name), func(t *testing.T) {
				t.Parallel()
				disk, _ := newDisk(t)
				var broken atomic.Bool
				fs := func(rank int) vfs.FS {
					return vfstest.NewInjector(disk, func(_ int, op vfstest.Op) vfstest.Fault {
						if rank == test.rank && broken.Load() && op.Kind == "write" && strings.Contains(op.Path, test.file) {
							return vfstest.Fault{Err: test.errno}
						}
						return vfstest.Fault{}
					})
				}
				mustAll(t, trial{world: 3, attempt: 1, o: o, fs: fs}.run(t.Context(), func(ctx context.Context, r *one) error {
					if err := r.save(ctx, 1); err != nil {
						return err
					}
					if _, err := r.Wait(ctx); err != nil {
						return err
					}
					broken.Store(true)
					err := r.save(ctx, 2)
					if o.Async && err == nil {
						err = r.save(ctx, 3) // returns the error of step 2 and does not save
					}
					if !errors.Is(err, test.class) || !strings.Contains(err.Error(), fmt.Sprintf("rank %d:", test.rank)) {
						return fmt.Errorf("error %w, want one that is %w and names rank %d", err, test.class, test.rank)
					}
					if _, err := r.Wait(ctx); err != nil {
						return fmt.Errorf("the error comes twice: %w", err)
					}
					if r.rank == 0 { // the other ranks reach the next save only after this
						if files := tree(disk, sharedPath); strings.Contains(strings.Join(files, " "), "000002") {
							return fmt.Errorf("files stay: %v", files)
						}
						broken.Store(false)
					}
					if err := r.save(ctx, 4); err != nil {
						return err
					}
					_, err = r.Wait(ctx)
					return err
				}))
				if step, err := latest(disk, 1); step != 4 || err != nil {
					t.Fatalf("latest is %d: %v", step, err)
				}
			})
		}
	}
}

var errNaN = errors.New("not a number")

// The error that Check returns on one rank keeps its identity on every rank.
func TestCheckFailsAllRanks(t *testing.T) {
	t.Parallel()
	for name, o := range modes() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			disk, fs := newDisk(t)
			o.Errors = []error{errNaN}
			o.Check = func(name string, data []byte) error {
				if name == "own.1" && data[0] == content(name, len(data), 2)[0] {
					return fmt.Errorf("%w in %d bytes", errNaN, len(data))
				}
				return nil
			}
			errs := trial{world: 2, attempt: 1, o: o, fs: fs}.run(t.Context(), func(ctx context.Context, r *one) error {
				if err := r.save(ctx, 1); err != nil {
					return err
				}
				if err := r.save(ctx, 2); err != nil {
					return err
				}
				_, err := r.Wait(ctx)
				return err
			})
			wantAll(t, errs, errNaN, "rank 1: check of step 2: own.1")
			if step, err := latest(disk, 1); step != 1 || err != nil {
				t.Fatalf("latest is %d: %v", step, err)
			}
		})
	}
}

// While a rank cannot write, the first Save returns and the second waits. The test runs in virtual time, in which ticks pass.
func TestOnlyOneSaveIsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, _ := newDisk(t)
		stuck := newGate()
		fs := func(rank int) vfs.FS {
			return vfstest.NewInjector(disk, func(_ int, op vfstest.Op) vfstest.Fault {
				if rank == 1 && op.Kind == "create" && strings.Contains(op.Path, "shard-00001") {
					stuck.passes()
				}
				return vfstest.Fault{}
			})
		}
		var journal testkit.Journal
		var first, second atomic.Int32
		o := Options{Async: true, Log: journal.Logger(), tick: roundEvery}
		done := make(chan []error)
		go func() {
			done <- trial{world: 2, attempt: 1, o: o, fs: fs}.run(t.Context(), func(ctx context.Context, r *one) error {
				if err := r.save(ctx, 1); err != nil {
					return err
				}
				first.Add(1)
				if err := r.save(ctx, 2); err != nil {
					return err
				}
				second.Add(1)
				_, err := r.Wait(ctx)
				if waited := r.Stats().Wait; waited < time.Hour {
					err = errors.Join(err, fmt.Errorf("waited %v", waited))
				}
				return err
			})
		}()
		time.Sleep(time.Hour) // of the bubble; all ranks wait then
		if first.Load() != 2 || second.Load() != 0 {
			t.Errorf("%d ranks are past the first Save, %d past the second", first.Load(), second.Load())
		}
		stuck.open()
		mustAll(t, <-done)
		if !strings.Contains(journal.String(), "saving takes longer than the time between saves") {
			t.Errorf("log: %s", journal.String())
		}
		if step, err := latest(disk, 1); step != 2 || err != nil {
			t.Fatalf("latest is %d: %v", step, err)
		}
	})
}

func TestSaveRefusesRanksAtDifferentSteps(t *testing.T) {
	t.Parallel()
	_, fs := newDisk(t)
	m := newGoroutineGroup(3)
	for rank, err := range testkit.Each(3, func(rank int) error {
		return trial{world: 3, attempt: 1, fs: fs}.rank(t.Context(), m.member(rank), func(ctx context.Context, r *one) error {
			step := int64(5 + r.rank/2)
			if err := r.save(ctx, step); err == nil || !strings.Contains(err.Error(), "rank 2: saves step 6, but rank 0 saves step 5") {
				return fmt.Errorf("Save: %w", err)
			}
			if err := r.Close(); err != nil {
				return fmt.Errorf("Close says it again: %w", err)
			}
			return nil
		})
	}) {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

// If a save fails in the background, the next call of Save returns that error, with its step, on every rank. The call after that saves.
// Wait returns the error of the save that it waits for as its own, without naming an earlier save.
func TestNextCallReportsAFailedSave(t *testing.T) {
	t.Parallel()
	for _, later := range []bool{true, false} {
		disk, _ := newDisk(t)
		var broken atomic.Bool
		broken.Store(true)
		fs := func(rank int) vfs.FS {
			return vfstest.NewInjector(disk, func(_ int, op vfstest.Op) vfstest.Fault {
				if rank == 1 && op.Kind == "write" && broken.Load() && strings.Contains(op.Path, "shard-00001") {
					return vfstest.Fault{Err: syscall.ENOSPC}
				}
				return vfstest.Fault{}
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
			if !ok || earlier.Step != 4 || !errors.Is(err, checkpoint.ErrNoSpace) ||
				!strings.HasPrefix(err.Error(), "before step 6: the save of step 4: rank 1: ") {
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

// A quick save is stored without compression, whatever the codec. It also takes the place of a delta, and the next save is a delta again.
func TestQuickSaveIsStoredAsItIs(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]Options{"sync": {}, "async": {Async: true}, "delta": {Async: true, Delta: 3},
		"local": {Async: true, Local: localPath}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			disk, fs := newDisk(t)
			mustAll(t, trial{world: 3, attempt: 1, codec: "zstd", o: o, fs: fs}.run(t.Context(), func(ctx context.Context, r *one) error {
				for step := int64(1); step <= 3; step++ {
					for _, a := range r.arrays { // any codec compresses zeros
						clear(a.Data)
					}
					m := Meta{Step: step, Quick: step == 2 && (r.rank == 0 || o.Local != "")}
					if err := r.Save(ctx, m); err != nil {
						return err
					}
					info, err := r.Wait(ctx)
					if err != nil {
						return err
					}
					wantBase := int64(-1)
					if o.Delta > 0 && step == 3 {
						wantBase = 1
					}
					if small := info.Bytes < info.RawBytes/2; small == (step == 2) || info.BaseStep != wantBase {
						return fmt.Errorf("step %d takes %d bytes of %d, its base is %d", step, info.Bytes, info.RawBytes, info.BaseStep)
					}
				}
				return nil
			}))
			d, err := checkpoint.Open(sharedPath, checkpoint.Options{FS: disk, Run: "trial"})
			must(t, err)
			for step := int64(1); step <= 3; step++ {
				c, err := d.Find(t.Context(), step)
				must(t, err)
				must(t, errors.Join(c.Verify(t.Context()), c.Close()))
			}
		})
	}
}
