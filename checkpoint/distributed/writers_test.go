package distributed

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/vfs"
)

// smallState is less than a grain: one rank in the middle writes all of it.
func smallState(int) []Array {
	return []Array{
		{Name: "weight", DType: "float32", Shape: []int{250}, Data: make([]byte, 1000), Replicated: true},
		{Name: "empty", DType: "float32", Shape: []int{0}, Replicated: true},
	}
}

// ownOf is a state that only some ranks hold.
func ownOf(ranks ...int) func(rank int) []Array {
	return func(rank int) []Array {
		for _, r := range ranks {
			if r == rank {
				return []Array{{Name: fmt.Sprintf("own.%d", rank), DType: "uint8", Shape: []int{100 + rank}, Data: make([]byte, 100+rank)}}
			}
		}
		return nil
	}
}

func TestWriters(t *testing.T) {
	t.Parallel()
	of := func(ranks ...int) plan {
		p := plan{{Name: "empty"}}
		for _, rank := range ranks {
			p = append(p, planned{Cuts: []cut{{Rank: rank, Length: 1}, {Rank: 9, Start: 1, Length: 1}}})
		}
		return p
	}
	for _, test := range []struct {
		p    plan
		tier bool
		want []int
	}{
		{of(4, 2, 4), false, []int{2, 4, 9}},
		{of(4, 2, 4), true, []int{0, 2, 4, 9}},
		{of(0, 3), true, []int{0, 3, 9}},
		{of(), false, []int{0}},
		{of(), true, []int{0}},
	} {
		if got := test.p.writers(test.tier); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%v, tier %v: %v write, want %v", test.p, test.tier, got, test.want)
		}
	}
}

// TestOnlyWhoHasBytesWrites: of 64 ranks with a small state, or one that few of them hold, only those make files, and the checkpoint still knows 64.
// Another number of ranks goes on from it.
func TestOnlyWhoHasBytesWrites(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		arrays func(int) []Array
		o      Options
		quick  bool
		shards int // of every checkpoint
	}{
		"small":               {arrays: smallState, shards: 1},
		"small async delta":   {arrays: smallState, o: Options{Async: true, Delta: 1}, shards: 1},
		"small quick":         {arrays: smallState, quick: true, shards: 1},
		"few":                 {arrays: ownOf(3, 17, 63), o: Options{Async: true}, shards: 3},
		"few with a tier":     {arrays: ownOf(3, 17, 63), o: Options{Async: true, Local: localPath}, shards: 4},
		"nobody":              {arrays: ownOf(), shards: 1},
		"nobody, and a tier":  {arrays: ownOf(), o: Options{Local: localPath}, shards: 1},
		"small with a tier":   {arrays: smallState, o: Options{Local: localPath}, shards: 2},
		"small, tier, quick":  {arrays: smallState, o: Options{Local: localPath}, quick: true, shards: 2},
		"all of them, a tier": {arrays: arraysOf, o: Options{Local: localPath}, shards: 64},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			disk, fs := newDisk(t)
			var begun, made atomic.Int32
			count := func(rank int) vfs.FS {
				return vfs.NewInjector(fs(rank), func(_ int, op vfs.Op) vfs.Fault {
					if op.Kind == "create" && begun.Load() == 64 && strings.Contains(op.Path, sharedPath+"/step-") && strings.Contains(op.Path, "/shard-") {
						made.Add(1)
					}
					return vfs.Fault{}
				})
			}
			mustAll(t, trial{world: 64, attempt: 1, o: test.o, fs: count, arrays: test.arrays}.run(t.Context(), func(ctx context.Context, r *one) error {
				if _, err := r.resume(ctx); err != nil {
					return err
				}
				begun.Add(1)
				for step := int64(1); step <= 3; step++ {
					r.at(step)
					m := Meta{Step: step, Quick: test.quick, Values: valuesOf(step)}
					if err := r.Save(ctx, m); err != nil {
						return err
					}
					info, err := r.Wait(ctx)
					if err != nil || info.Step != step || info.World != 64 {
						return fmt.Errorf("step %d: %+v: %w", step, info, err)
					}
				}
				return nil
			}))
			if made.Load() != int32(3*test.shards) {
				t.Errorf("%d shards written in three saves, want %d each", made.Load(), test.shards)
			}
			for step := 1; step <= 3; step++ {
				folder := filepath.Join(sharedPath, fmt.Sprintf("step-%012d", step))
				if files := tree(disk, folder); len(files) != test.shards+1 {
					t.Errorf("step %d: %v, want %d shards and a manifest", step, files, test.shards)
				}
			}
			if step, err := latest(disk, 1); step != 3 || err != nil {
				t.Errorf("latest is %d: %v", step, err)
			}
			mustAll(t, trial{world: 3, attempt: 2, o: test.o, fs: fs}.run(t.Context(), resumesFrom(3)))
		})
	}
}

// TestUndrainedOfFewWriters: 7 ranks on four nodes, of which two have bytes, and rank 0 none; step 2 stays on the nodes' disks. The next attempt commits it
// as what 7 ranks have saved.
func TestUndrainedOfFewWriters(t *testing.T) {
	t.Parallel()
	ns := newNodes(t, 4)
	saves := trial{world: 7, attempt: 1, o: Options{Async: true, Local: localPath}, fs: ns.fs(0), arrays: ownOf(3, 6)}
	errs := saves.run(t.Context(), func(ctx context.Context, r *one) error {
		if _, err := r.resume(ctx); err != nil {
			return err
		}
		for step := int64(1); step <= 2; step++ {
			if err := r.save(ctx, step); err != nil {
				return err
			}
			if _, err := r.Wait(ctx); err != nil {
				return err
			}
			ns.full.Store(true)
		}
		return nil
	})
	wantAll(t, errs, checkpoint.ErrNoSpace, "rank ")
	ns.full.Store(false)
	mustAll(t, trial{world: 8, attempt: 2, o: Options{Local: localPath}, fs: ns.fs(1)}.run(t.Context(), func(ctx context.Context, r *one) error {
		c, err := r.Resume(ctx, check)
		if err != nil {
			return err
		}
		if c.Step() != 2 || c.Info().World != 7 {
			err = fmt.Errorf("resumed from step %d, which %d ranks have saved", c.Step(), c.Info().World)
		}
		return errors.Join(err, c.Close())
	}))
	for i, disk := range ns.disks {
		if files := tree(disk, localPath); len(files) > 0 {
			t.Errorf("node %d keeps %v", i, files)
		}
	}
}

// TestRankWithoutBytesLosesTheGroup: the group fails in the middle of a save at every collective in turn. Who writes nothing ends with an error, as all do.
func TestRankWithoutBytesLosesTheGroup(t *testing.T) {
	t.Parallel()
	for k := 1; k < 40; k++ {
		_, fs := newDisk(t)
		m := newMeeting(3)
		var died atomic.Bool
		m.fault = func(rank, call int) error {
			if rank == 0 && call == k {
				died.Store(true)
				return errDead
			}
			return nil
		}
		o := Options{Async: true, tick: time.Hour} // collectives are those that news makes, however slow the machine is
		errs := trial{world: 3, attempt: 1, fs: fs, meeting: m, arrays: ownOf(1), o: o}.run(t.Context(), func(ctx context.Context, r *one) error {
			if err := r.save(ctx, 1); err != nil {
				return err
			}
			_, err := r.Wait(ctx)
			return err
		})
		if !died.Load() {
			mustAll(t, errs)
			if k < 5 {
				t.Errorf("a save took only %d collectives", k)
			}
			return
		}
		wantAll(t, errs, errDead, "")
	}
	t.Error("a save of one rank's bytes takes more than 40 collectives")
}

// TestStopWithoutDraft: the group fails just as a rank that has no shard has not reported yet that it is done.
func TestStopWithoutDraft(t *testing.T) {
	t.Parallel()
	s := &Saver{talk: newTalk(newMeeting(2).member(1), nil), changed: make(chan struct{})}
	s.rounds = newRounds(s)
	s.rounds.writing = &writing{cancel: func() {}}
	s.rounds.stop(errDead)
	if !errors.Is(s.broken, errDead) {
		t.Errorf("the saver ended with %v", s.broken)
	}
}

// TestRanksWithoutBytesSweep: what an attempt has left on a node goes although the ranks that are there now write nothing.
func TestRanksWithoutBytesSweep(t *testing.T) {
	t.Parallel()
	ns := undrained(t) // on nodes 0 and 1
	ns.disks = []*vfs.Mem{ns.disks[2], ns.disks[1]}
	mustAll(t, trial{world: 4, attempt: 2, o: Options{Local: localPath}, fs: ns.fs(0), arrays: ownOf(1)}.run(t.Context(), func(ctx context.Context, r *one) error {
		if _, err := r.Resume(ctx, func(*checkpoint.Checkpoint) error { return nil }); err != nil {
			return err
		}
		if err := r.save(ctx, 5); err != nil {
			return err
		}
		_, err := r.Wait(ctx)
		return err
	}))
	if files := tree(ns.disks[1], localPath); len(files) > 0 {
		t.Errorf("node 1 keeps %v", files)
	}
}
