package distributed

import (
	"context"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/testkit"
	"ddpbatch/internal/vfs"
)

// TestFolderGoesBeforeItsFirstFile: a rank makes the folder of a save, or has found it there, and another rank of its node lets go of the last
// shard in it, and so of the folder, before the first has a file there. Neither its own shard nor a replica is lost by that.
func TestFolderGoesBeforeItsFirstFile(t *testing.T) {
	t.Parallel()
	ns := newNodes(t, 2)
	var own, replicas atomic.Int64 // folders that went
	fs := func(rank int) vfs.FS {
		var met sync.Map // folders; each is met once
		return vfs.NewInjector(ns.fs(0)(rank), func(_ int, op vfs.Op) vfs.Fault {
			folder := filepath.Dir(op.Path)
			if op.Kind != "create" || !strings.HasPrefix(op.Path, localPath) || !strings.HasPrefix(filepath.Base(folder), "step-") {
				return vfs.Fault{}
			}
			if _, again := met.LoadOrStore(folder, true); again {
				return vfs.Fault{}
			}
			if err := ns.disks[rank/2].RemoveDir(folder); err != nil { // not empty: the other rank's file keeps it
				return vfs.Fault{}
			}
			if filepath.Base(filepath.Dir(folder)) == "replicas" {
				replicas.Add(1)
			} else {
				own.Add(1)
			}
			return vfs.Fault{}
		})
	}
	var journal testkit.Journal
	tr, _ := trial{world: 4, attempt: 1, o: Options{Async: true, Log: journal.Logger()}, fs: fs}.replicated()
	errs := tr.run(t.Context(), func(ctx context.Context, r *one) error {
		if err := r.saveAll(ctx, 1); err != nil {
			return err
		}
		ns.full.Store(true) // so what is copied stays
		return r.saveAll(ctx, 2)
	})
	wantAll(t, errs, checkpoint.ErrNoSpace, "rank ")
	if own.Load() == 0 || replicas.Load() == 0 {
		t.Errorf("%d folders of shards and %d of replicas went, want some of each", own.Load(), replicas.Load())
	}
	if log := journal.String(); strings.Contains(log, "does not take") {
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

// shardsIn lists the shards directly below a part of the run's folder.
func shardsIn(disk vfs.FS, part string) (shards []string) {
	for _, path := range tree(disk, localPath) {
		run := filepath.Dir(filepath.Dir(path))
		if rest, ok := strings.CutSuffix(run, "/replicas"); ok == (part != "") && filepath.Dir(rest) == localPath && filepath.Ext(path) == ".ddpt" {
			shards = append(shards, path)
		}
	}
	return shards
}
