package distributed

import (
	"context"
	"reflect"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"ddpbatch/internal/testkit/vfstest"
	"ddpbatch/internal/vfs"
)

// A disk that cannot be searched now may hold an acknowledged save, so no rank resumes without it. The save is there once the disk can be
// read again.
func TestFailedSearchGivesUpNoSave(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"open", "readdir"} {
		ns := undrained(t)
		fs := func(rank int) vfs.FS {
			return vfstest.NewInjector(ns.fs(0)(rank), func(_ int, op vfstest.Op) vfstest.Fault {
				if rank == 1 && op.Kind == kind && strings.HasPrefix(op.Path, localPath) {
					return vfstest.Fault{Err: syscall.EMFILE}
				}
				return vfstest.Fault{}
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

// The two ranks of a node copy one shard each.
func TestShardsOfANodeAreDealtOut(t *testing.T) {
	t.Parallel()
	ns := undrained(t)
	var copies [4]atomic.Int32
	fs := func(rank int) vfs.FS {
		return vfstest.NewInjector(ns.fs(0)(rank), func(_ int, op vfstest.Op) vfstest.Fault {
			if op.Kind == "create" && strings.Contains(op.Path, "/shard-") && strings.HasPrefix(op.Path, sharedPath) {
				copies[rank].Add(1)
			}
			return vfstest.Fault{}
		})
	}
	mustAll(t, trial{world: 4, attempt: 2, o: Options{Local: localPath}, fs: fs}.run(t.Context(), resumesFrom(2)))
	for rank := range copies {
		if n := copies[rank].Load(); n != 1 {
			t.Errorf("rank %d has copied %d shards", rank, n)
		}
	}
}

// The larger shards go to different ranks, and no rank gets a shard that it does not see.
func TestLargerShardsGoToDifferentRanks(t *testing.T) {
	t.Parallel()
	l := uncommittedSave{
		seen:  []seenBy{{own: []int{0, 1}}, {own: []int{0, 1}, replica: []int{2, 3}}, {replica: []int{2}}, {own: []int{0, 1}}},
		sizes: []int64{100, 10, 5, 20},
	}
	want := [][]holder{{{Rank: 0}}, {{Rank: 1}, {Rank: 2, Replica: true}}, {{Rank: 2, Replica: true}}, {{Rank: 1}}}
	if got := l.assignShards(); !reflect.DeepEqual(got, want) {
		t.Errorf("dealt to %v, want %v", got, want)
	}
}
