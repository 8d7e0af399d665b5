package checkpoint

import (
	"errors"
	"syscall"
	"testing"

	"ddpbatch/checkpoint/internal/manifest"
	"ddpbatch/internal/testkit/vfstest"
)

// If another process pins a checkpoint while it is removed, at whatever operation, the checkpoint stays if Pin returns no error.
func TestPinnedWhileRemovedStays(t *testing.T) {
	t.Parallel()
	pins := 0
	for k := 1; ; k++ {
		m := vfstest.New(t)
		w := attempt(t, m, 1, Policy{})
		for _, step := range []int64{100, 110, 120} {
			save(t, w, testState(step, 0))
		}
		user := openDir(t, Options{FS: m, Run: "r"})
		tried, pin := false, error(nil)
		in := vfstest.NewInjector(m, func(i int, _ vfstest.Op) vfstest.Fault {
			if i == k {
				tried, pin = true, user.Pin(t.Context(), 100, "mine")
			}
			return vfstest.Fault{}
		})
		_, err := attempt(t, in, 1, Policy{}).Prune(t.Context(), Policy{Last: 2})
		must(t, err)
		if !tried {
			break
		}
		if pin == nil {
			pins++
			must(t, VerifyStep(t.Context(), user, 100))
			continue
		}
		wantErr(t, "Pin", pin, ErrNone)
		save(t, attempt(t, m, 2, Policy{Last: 2}), testState(130, 0))
		wantList(t, user, "120 committed, 130 committed")
	}
	if pins < 3 {
		t.Errorf("only %d pins came early enough: the test tests little", pins)
	}
}

// TestRemovalSparesWhatIsBeingPinned is the reverse of the test above: it removes the checkpoint at each operation of a Pin.
func TestRemovalSparesWhatIsBeingPinned(t *testing.T) {
	t.Parallel()
	for k, reached := 1, true; reached; k++ {
		reached = false
		m := vfstest.New(t)
		w := attempt(t, m, 1, Policy{})
		for _, step := range []int64{100, 110, 120} {
			save(t, w, testState(step, 0))
		}
		in := vfstest.NewInjector(m, func(i int, _ vfstest.Op) vfstest.Fault {
			if i == k {
				reached = true
				_, err := w.Prune(t.Context(), Policy{Last: 2})
				must(t, err)
			}
			return vfstest.Fault{}
		})
		if err := openDir(t, Options{FS: in, Run: "r"}).Pin(t.Context(), 100, "mine"); err != nil {
			continue
		}
		must(t, VerifyStep(t.Context(), w, 100))
	}
}

// If the removal of a pinned checkpoint was interrupted, the next retention restores the checkpoint, provided that it is whole.
func TestPinUndoesAnInterruptedRemoval(t *testing.T) {
	t.Parallel()
	for _, whole := range []bool{true, false} {
		m := vfstest.New(t)
		d := attempt(t, m, 1, Policy{})
		save(t, d, testState(100, 0))
		must(t, m.Rename(d.stepPath(100)+"/"+manifest.Name, d.stepPath(100)+"/"+manifest.DeletingName))
		vfstest.Put(t, m, d.stepPath(100)+"/PINNED", nil)
		if !whole {
			must(t, m.Remove(find(t, m, d.stepPath(100), "shard-")))
		}
		save(t, attempt(t, m, 2, Policy{}), testState(200, 0))
		if whole {
			wantList(t, d, "100 committed, 200 committed")
		} else {
			wantList(t, d, "100 partial, 200 committed")
		}
	}
}

// If Pin cannot read a checkpoint, it returns the reason. It does not report that the checkpoint does not exist.
func TestPinReportsWhatCannotBeRead(t *testing.T) {
	t.Parallel()
	for _, part := range []string{"/" + manifest.Name, ""} {
		m := vfstest.New(t)
		save(t, attempt(t, m, 1, Policy{}), testState(100, 1))
		f := &fault{kinds: []string{"open", "readdir"}, part: manifest.StepFolder(100) + part, err: syscall.EIO, on: true}
		d := attempt(t, f.over(m), 1, Policy{})
		err := d.Pin(t.Context(), 100, "best")
		wantErr(t, "Pin", err, syscall.EIO)
		if errors.Is(err, ErrNone) {
			t.Errorf("error %v", err)
		}
		wantErr(t, "Pin of another step", d.Pin(t.Context(), 99, "best"), ErrNone)
	}
}
