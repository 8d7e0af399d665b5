package checkpoint

import (
	"errors"
	"strings"
	"testing"

	"ddpbatch/checkpoint/internal/manifest"
	"ddpbatch/internal/vfs"
)

// TestRemovedWhileLooking: what is removed under a reader's hands makes it look again, since there
// are newer ones then.
func TestRemovedWhileLooking(t *testing.T) {
	t.Parallel()
	m := newMem(t)
	w := attempt(t, m, 1, Policy{Last: 2, Every: 100})
	for _, step := range []int64{100, 110, 120} {
		save(t, w, testState(step, 0))
	}
	next, last := int64(130), int64(140)
	in := vfs.NewInjector(m, func(_ int, op vfs.Op) vfs.Fault {
		for op.Kind == "open" && strings.HasSuffix(op.Path, manifest.Name) && next <= last {
			save(t, w, testState(next, 0))
			next += 10
		}
		if next == last+10 && last == 140 && op.Kind == "readdir" && op.Path == testPath {
			next, last = 150, 160 // and once more, in the second look
		}
		return vfs.Fault{}
	})
	c, err := openDir(t, Options{FS: in}).FindLatest(t.Context())
	must(t, err)
	if c.Step() != 160 {
		t.Errorf("the latest is step %d, of which 120 was there at the start and 160 at the end", c.Step())
	}
	must(t, c.Close())
}

// TestHalfRemoved: what a dead process has begun to remove does not keep a reader looking.
func TestHalfRemoved(t *testing.T) {
	t.Parallel()
	m := newMem(t)
	d := attempt(t, m, 1, Policy{})
	save(t, d, testState(100, 0))
	save(t, d, testState(200, 0))
	must(t, m.Rename(d.stepPath(200)+"/"+manifest.Name, d.stepPath(200)+"/"+manifest.DeletingName))
	lists := 0
	in := vfs.NewInjector(m, func(_ int, op vfs.Op) vfs.Fault {
		if op.Kind == "readdir" && op.Path == testPath {
			lists++
		}
		return vfs.Fault{}
	})
	c, err := attempt(t, in, 2, Policy{}).FindLatest(t.Context())
	must(t, err)
	if c.Step() != 100 || lists > 2 {
		t.Errorf("the latest is step %d, after %d looks", c.Step(), lists)
	}
	must(t, c.Close())
}

// rejected lets an attempt reject the checkpoint of a step, which is damaged before.
func rejected(t *testing.T, m *vfs.Mem, d *Dir, step int64) {
	t.Helper()
	c, err := d.Find(t.Context(), step)
	must(t, err)
	shard := find(t, m, c.path(), "shard-")
	putFile(t, m, shard, flip(readFile(t, m, shard), 8*100))
	must(t, d.Reject(t.Context(), c))
	must(t, c.Close())
}

// TestNothingLeft: a run whose checkpoints are all lost does not begin anew by itself; one that was
// told to begin anew goes on doing so.
func TestNothingLeft(t *testing.T) {
	t.Parallel()
	look := func(m *vfs.Mem, n int, want error) {
		t.Helper()
		_, err := attempt(t, m, n, Policy{}).FindLatest(t.Context())
		if !errors.Is(err, want) || errors.Is(err, ErrNone) == errors.Is(err, ErrCorrupt) {
			t.Errorf("attempt %d: %v, want %v", n, err, want)
		}
		if want == ErrCorrupt && !strings.Contains(err.Error(), `resume = "never"`) {
			t.Errorf("%v does not say what to do", err)
		}
	}
	m := newMem(t)
	look(m, 1, ErrNone)
	one := attempt(t, m, 1, Policy{})
	begin(t, one, -1)
	look(m, 2, ErrNone) // attempt 1 died before its first save
	save(t, one, testState(100, 1))
	save(t, one, testState(200, 1))
	two := attempt(t, m, 2, Policy{})
	begin(t, two, 100) // as when 200 could not be read
	rejected(t, m, attempt(t, m, 3, Policy{}), 100)
	look(m, 3, ErrCorrupt) // 200 is whole, and superseded
	begin(t, attempt(t, m, 4, Policy{}), -1)
	look(m, 5, ErrNone) // deliberately
	save(t, attempt(t, m, 4, Policy{}), testState(10, 4))
	rejected(t, m, attempt(t, m, 5, Policy{}), 10)
	look(m, 6, ErrCorrupt)

	m = newMem(t)
	save(t, attempt(t, m, 1, Policy{}), testState(100, 1))
	rejected(t, m, attempt(t, m, 2, Policy{}), 100)
	look(m, 3, ErrCorrupt)
	broken := find(t, m, testPath+"/"+manifest.StepFolder(100)+".broken", manifest.Name)
	data := readFile(t, m, broken)
	putFile(t, m, broken, flip(data, 99)) // the shard's name still says whose it is
	look(m, 3, ErrCorrupt)
	begin(t, attempt(t, m, 3, Policy{}), -1)
	look(m, 4, ErrNone)
}

// TestRejectedNameReused: that a save was bad says nothing about a later one in the same folder.
func TestRejectedNameReused(t *testing.T) {
	t.Parallel()
	m := newMem(t)
	save(t, attempt(t, m, 1, Policy{}), testState(100, 1))
	save(t, attempt(t, m, 1, Policy{}), testState(200, 1))
	d := attempt(t, m, 2, Policy{Last: 2, Every: 200})
	rejected(t, m, d, 200)
	begin(t, d, 100)
	save(t, d, testState(200, 2))
	must(t, d.Pin(t.Context(), 200, "best"))
	must(t, m.Remove(d.stepPath(200)+"/"+manifest.PinName("best")))
	save(t, d, testState(300, 2))
	save(t, d, testState(400, 2))
	wantList(t, d, "200 broken, 200 committed, 300 committed, 400 committed")
}
