package checkpoint_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/testkit"
	"ddpbatch/internal/testkit/thin"
	"ddpbatch/internal/testkit/vfstest"
	"ddpbatch/internal/vfs"
)

// attempts is the folder of one run and the number of its newest attempt.
type attempts struct {
	fs     *vfstest.Mem
	newest atomic.Int64
}

// open opens the folder through fsys as an attempt of the run. A blind attempt always has a stale view of the fence, so it takes itself for
// the newest.
func (a *attempts) open(t testing.TB, fsys vfs.FS, attempt int, blind bool) *checkpoint.Dir {
	return hardOpen(t, checkpoint.Options{
		FS: fsys, Run: "run", Attempt: attempt, Keep: checkpoint.Policy{Last: 2},
		Fence: func() error {
			if newest := a.newest.Load(); newest > int64(attempt) && !blind {
				return fmt.Errorf("attempt %d has begun", newest)
			}
			return nil
		},
	})
}

// first runs attempt 1, which saves steps 10 to 40; retention removes steps 10 and 20 meanwhile. It returns the last step that was
// acknowledged.
func first(d *checkpoint.Dir) (acknowledged int64, err error) {
	ctx := context.Background()
	if err := d.Begin(ctx, nil); err != nil {
		return 0, err
	}
	for step := int64(10); step <= 40; step += 10 {
		if _, err := d.Save(ctx, hardState(step, 1)); err != nil {
			return acknowledged, err
		}
		acknowledged = step
	}
	return acknowledged, nil
}

// TestZombieBreaksNothingOfTheNewer stops attempt 1 before its k-th operation, for every k. Meanwhile attempt 2 resumes, saves the same
// steps and further ones, and removes old ones. Then attempt 1 continues, and either sees the fence or, if it is blind, does not. Nothing
// of attempt 2 may be lost, hidden or changed.
func TestZombieBreaksNothingOfTheNewer(t *testing.T) { // without the race detector
	t.Parallel()
	whole := attempts{fs: vfstest.New(t)}
	counter := vfstest.NewInjector(whole.fs, nil)
	_, err := first(whole.open(t, counter, 1, false))
	need(t, err)
	operations := counter.Log()
	t.Logf("%d operations", len(operations))
	saves := []int{0, 1, 3} // by attempt 2, before the zombie wakes
	for k := 1; k <= len(operations); k += thin.Step(7) {
		for i, blind := range []bool{false, true} { // each with one of the numbers of saves, in turn
			z := zombie{k: k, saves: saves[(k+i)%len(saves)], blind: blind}
			if err := z.play(t); err != nil {
				t.Fatalf("attempt 1 asleep before operation %d (%s), %d saves of attempt 2, blind %v: %v\n%s",
					k, operations[k-1], z.saves, blind, err, strings.Join(hardFiles(t, z.run.fs, hardPath), "\n"))
			}
		}
	}
}

type zombie struct {
	k     int
	saves int
	blind bool
	run   attempts
}

func (z *zombie) play(t *testing.T) error {
	ctx := context.Background()
	z.run.fs = vfstest.New(t)
	z.run.newest.Store(1)
	asleep, wake := make(chan struct{}), make(chan struct{})
	in := vfstest.NewInjector(z.run.fs, func(k int, _ vfstest.Op) vfstest.Fault {
		if k != z.k {
			return vfstest.Fault{}
		}
		close(asleep)
		return vfstest.Fault{Wait: wake}
	})
	var reported int64
	var zombieErr error
	done := make(chan struct{})
	old := z.run.open(t, in, 1, z.blind)
	go func() {
		defer close(done)
		reported, zombieErr = first(old)
	}()
	<-asleep

	z.run.newest.Store(2)
	live := z.run.open(t, z.run.fs, 2, false)
	resumed, err := resume(live)
	if err != nil {
		close(wake)
		<-done
		return err
	}
	newest := resumed
	for range z.saves {
		newest += 10
		if _, err := live.Save(ctx, hardState(newest, 2)); err != nil {
			close(wake)
			<-done
			return fmt.Errorf("attempt 2, step %d: %w", newest, err)
		}
	}

	close(wake)
	testkit.Within(t, testkit.Patience, func() { <-done })
	if !z.blind && zombieErr == nil && reported > resumed+10 {
		return fmt.Errorf("attempt 1 was acknowledged step %d after attempt 2 had begun from %d", reported, resumed)
	}
	if err := z.check(live, resumed, newest); err != nil {
		return fmt.Errorf("attempt 1 awake again (%v): %w", zombieErr, err)
	}
	for range 3 {
		newest += 10
		if _, err := live.Save(ctx, hardState(newest, 2)); err != nil {
			return fmt.Errorf("attempt 2 after the zombie's end, step %d: %w", newest, err)
		}
	}
	if err := z.check(live, resumed, newest); err != nil {
		return fmt.Errorf("attempt 2 after the zombie's end: %w", err)
	}
	return z.check(z.run.open(t, z.run.fs, 3, false), resumed, newest)
}

// resume begins an attempt and returns the step that it resumes from, or 0 if it begins anew.
func resume(d *checkpoint.Dir) (int64, error) {
	ctx := context.Background()
	c, err := d.FindLatest(ctx)
	if errors.Is(err, checkpoint.ErrNone) {
		return 0, d.Begin(ctx, nil)
	}
	if err != nil {
		return 0, err
	}
	defer c.Close()
	if err := c.Verify(ctx); err != nil {
		return 0, err
	}
	return c.Step(), d.Begin(ctx, c)
}

// check checks that the newest checkpoint is attempt 2's of step newest, or the one that it resumed from, and that no committed checkpoint
// is damaged.
func (z *zombie) check(d *checkpoint.Dir, resumed, newest int64) error {
	ctx := context.Background()
	list, err := d.List(ctx)
	if err != nil {
		return err
	}
	for _, info := range list {
		if info.State == checkpoint.StateBroken || info.State == checkpoint.StateNewer {
			return fmt.Errorf("step %d is %s", info.Step, info.State)
		}
	}
	s, info, err := d.Latest(ctx)
	if newest == 0 && errors.Is(err, checkpoint.ErrNone) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("latest: %w", err)
	}
	variant, err := hardVariant(s)
	if err != nil {
		return err
	}
	want := 2
	if newest == resumed {
		want = 1
	}
	if info.Step != newest || variant != want {
		return fmt.Errorf("the latest is step %d of history %d, want %d of %d", info.Step, variant, newest, want)
	}
	if newest >= resumed+20 { // check the one before it, too: the policy keeps it
		s, err := d.Load(ctx, newest-10)
		if err != nil {
			return fmt.Errorf("step %d: %w", newest-10, err)
		}
		if variant, err := hardVariant(s); err != nil || variant != 2 {
			return fmt.Errorf("step %d is of history %d, want 2: %w", newest-10, variant, err)
		}
	}
	return nil
}

// TestCrashesOfTwoAttemptsLoseNothing cuts the power after the k-th operation of attempt 1, lets attempt 2 resume from what is left, cuts
// the power again at a random moment, and checks what attempt 3 finds.
func TestCrashesOfTwoAttemptsLoseNothing(t *testing.T) { // without the race detector
	if testing.Short() {
		t.Skip("-short: it crashes very many times")
	}
	t.Parallel()
	whole := attempts{fs: vfstest.New(t)}
	counter := vfstest.NewInjector(whole.fs, nil)
	_, err := first(whole.open(t, counter, 1, false))
	need(t, err)
	for k := 0; k < len(counter.Log()); k += thin.Step(11) {
		run := attempts{fs: vfstest.New(t)}
		acknowledged, err := first(run.open(t, vfstest.NewInjector(run.fs, vfstest.CrashAfter(k)), 1, false))
		if err != nil && !errors.Is(err, vfstest.ErrCrashed) || err == nil && acknowledged < 40 { // no error: it crashed during cleanup
			t.Fatalf("a crash after operation %d: %v", k, err)
		}
		for _, percent := range []int{0, 10, 50} {
			for seed := range uint64(16 / thin.Step(8)) {
				after := attempts{fs: run.fs.CrashClone(percent, rand.New(rand.NewPCG(seed, uint64(k))))}
				if err := secondCrash(t, &after, acknowledged, seed); err != nil {
					t.Fatalf("crash after operation %d, %d %% kept, seed %d, step %d acknowledged: %v\n%s",
						k, percent, seed, acknowledged, err, strings.Join(hardFiles(t, after.fs, hardPath), "\n"))
				}
			}
		}
	}
}

// secondCrash runs attempt 2, which crashes, too, and checks what attempt 3 finds.
func secondCrash(t *testing.T, run *attempts, acknowledged int64, seed uint64) error {
	ctx := context.Background()
	rng := rand.New(rand.NewPCG(seed, 99))
	d := run.open(t, vfstest.NewInjector(run.fs, vfstest.CrashAfter(rng.IntN(120))), 2, false)
	newest, variant := acknowledged, 1
	resumed, err := resume(d)
	switch {
	case err != nil && !errors.Is(err, vfstest.ErrCrashed):
		return err
	case err == nil && (resumed < acknowledged || resumed > acknowledged+10):
		return fmt.Errorf("attempt 2 resumed from step %d, %d was acknowledged", resumed, acknowledged)
	case err == nil:
		newest = resumed
		for step := resumed + 10; step <= resumed+30; step += 10 {
			if _, err := d.Save(ctx, hardState(step, 2)); err != nil {
				if !errors.Is(err, vfstest.ErrCrashed) {
					return err
				}
				break
			}
			newest, variant = step, 2
		}
	}
	after := run.fs.CrashClone(30, rng)
	s, info, err := run.open(t, after, 3, false).Latest(ctx)
	if errors.Is(err, checkpoint.ErrNone) && newest == 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("attempt 3, after step %d: %w", newest, err)
	}
	got, err := hardVariant(s)
	if err != nil {
		return err
	}
	if info.Step == newest && got == variant || info.Step == newest+10 { // the save in flight
		return nil
	}
	return fmt.Errorf("attempt 3 finds step %d of history %d, want %d of %d", info.Step, got, newest, variant)
}

// fresh gives every file the current time. A Mem does not record times, and a file without a time looks like one that was left behind.
type fresh struct{ vfs.FS }

type freshInfo struct{ fs.FileInfo }

func (freshInfo) ModTime() time.Time { return time.Now() }

func (f fresh) Stat(name string) (fs.FileInfo, error) {
	info, err := f.FS.Stat(name)
	if err != nil {
		return nil, err
	}
	return freshInfo{info}, nil
}

// TestPruneBreaksNoSave lets a tool (ckpt prune, without an attempt and a fence) remove old checkpoints at each operation of a job's saves.
// Every save of the job must succeed, what is committed must be whole, and the newest step that was acknowledged must be there.
func TestPruneBreaksNoSave(t *testing.T) { // without the race detector
	t.Parallel()
	count := vfstest.NewInjector(vfstest.New(t), nil)
	_, err := deltas(t, count)
	need(t, err)
	operations := count.Log()
	for k := 1; k <= len(operations); k += thin.Step(7) {
		m := vfstest.New(t)
		tool := hardOpen(t, checkpoint.Options{FS: fresh{m}, Run: "tool"})
		in := vfstest.NewInjector(m, func(i int, _ vfstest.Op) vfstest.Fault {
			if i == k { // the job waits at this operation
				if _, err := tool.Prune(t.Context(), checkpoint.Policy{Last: 2}); err != nil {
					t.Errorf("prune before operation %d (%s): %v", k, operations[k-1], err)
				}
			}
			return vfstest.Fault{}
		})
		acknowledged, err := deltas(t, in)
		if err := whole(t, tool, acknowledged); err != nil {
			t.Fatalf("prune before operation %d (%s): %v\n%s", k, operations[k-1], err, strings.Join(hardFiles(t, m, hardPath), "\n"))
		}
		if err != nil {
			t.Fatalf("prune before operation %d (%s): the job: %v", k, operations[k-1], err)
		}
	}
}

// deltas saves steps 1 (full), 2 and 3 (deltas of 1), 4 (full) and 5 (a delta of 4), and keeps all of them.
func deltas(t *testing.T, fsys vfs.FS) (acknowledged int64, err error) {
	d := hardOpen(t, checkpoint.Options{FS: fsys, Run: "tool", Attempt: 1})
	if err := d.Begin(t.Context(), nil); err != nil {
		return 0, err
	}
	var base *checkpoint.Checkpoint
	for step := int64(1); step <= 5; step++ {
		if step == 1 || step == 4 {
			if base, err = nil, draftSave(d, hardState(step, 0), 2, nil, nil); err == nil {
				base, err = d.Find(t.Context(), step)
			}
			if err == nil {
				defer base.Close()
			}
		} else {
			err = draftSave(d, hardState(step, 0), 2, base, hardState(base.Step(), 0))
		}
		if err != nil {
			return acknowledged, fmt.Errorf("step %d: %w", step, err)
		}
		acknowledged = step
	}
	return acknowledged, nil
}

func whole(t *testing.T, d *checkpoint.Dir, newest int64) error {
	list, err := d.List(t.Context())
	if err != nil {
		return err
	}
	for _, info := range list {
		if info.State != checkpoint.StateCommitted {
			return fmt.Errorf("step %d is %s", info.Step, info.State)
		}
		s, err := d.Load(t.Context(), info.Step)
		if err != nil {
			return err
		}
		if err := hardSame(s, hardState(info.Step, 0)); err != nil {
			return err
		}
	}
	if len(list) == 0 || list[len(list)-1].Step != newest {
		return fmt.Errorf("step %d was acknowledged, and is not the newest of %v", newest, list)
	}
	return nil
}
