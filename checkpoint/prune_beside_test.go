package checkpoint_test

import (
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"time"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/testkit/thin"
	"ddpbatch/internal/testkit/vfstest"
	"ddpbatch/internal/vfs"
)

// fresh gives everything the time of now: a Mem knows none, and what is of no time looks left behind.
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

// TestPruneAtEachOperationOfASave has a tool (ckpt prune: no attempt, no fence) remove old checkpoints while a
// job is in the middle of its saves, at every operation of them. Every save of the job succeeds or says
// that it did not; what is committed is whole, and the newest that was acknowledged is there.
func TestPruneAtEachOperationOfASave(t *testing.T) { // without the race detector
	t.Parallel()
	count := vfs.NewInjector(vfstest.New(t), nil)
	_, err := deltas(t, count)
	need(t, err)
	operations := count.Log()
	for k := 1; k <= len(operations); k += thin.Step(7) {
		m := vfstest.New(t)
		tool := hardOpen(t, checkpoint.Options{FS: fresh{m}, Run: "tool"})
		in := vfs.NewInjector(m, func(i int, _ vfs.Op) vfs.Fault {
			if i == k { // the job is at this operation, and no further
				if _, err := tool.Prune(t.Context(), checkpoint.Policy{Last: 2}); err != nil {
					t.Errorf("prune before operation %d (%s): %v", k, operations[k-1], err)
				}
			}
			return vfs.Fault{}
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

// deltas saves 1 (full), 2 and 3 (deltas of 1), 4 (full) and 5 (a delta of 4), keeping all.
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
