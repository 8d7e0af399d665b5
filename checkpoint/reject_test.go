package checkpoint

import (
	"strings"
	"syscall"
	"testing"

	"ddpbatch/internal/testkit/vfstest"
)

// Reject renames a checkpoint only if it is still damaged when it is read again, and only if the caller is an attempt of the same run whose
// fence is open.
func TestRejectRenamesOnlyWhatIsDamaged(t *testing.T) {
	t.Parallel()
	m := vfstest.New(t)
	d := attempt(t, m, 2, Policy{})
	for range 2 { // the second time, the name is already in use
		save(t, attempt(t, m, 1, Policy{}), testState(1, 0))
		c, err := d.Find(t.Context(), 1)
		must(t, err)
		if err := d.Reject(t.Context(), c); err == nil {
			t.Fatal("a good checkpoint is rejected")
		}
		shard := find(t, m, d.stepPath(1), "shard-")
		good := vfstest.Read(t, m, shard)
		vfstest.Put(t, m, shard, flip(good, 8*100))

		for name, other := range map[string]*Dir{
			"a tool":               openDir(t, Options{FS: m, Run: "r"}),
			"an unreadable disk":   attempt(t, vfstest.NewInjector(m, failReads), 2, Policy{}),
			"a superseded attempt": openDir(t, Options{FS: m, Run: "r", Attempt: 2, Fence: func() error { return errNewer }}),
		} {
			if err := other.Reject(t.Context(), c); err == nil {
				t.Errorf("%s rejects", name)
			}
			if _, err := m.Stat(d.stepPath(1)); err != nil {
				t.Fatalf("%s renamed it", name)
			}
		}
		other := openDir(t, Options{FS: m, Run: "s", Attempt: 2})
		must(t, other.Reject(t.Context(), c)) // the other run skips it and does not rename it
		_, err = other.FindLatest(t.Context())
		wantErr(t, "FindLatest of another run", err, ErrCorrupt)
		must(t, d.Reject(t.Context(), c))
		if _, err := m.Stat(d.stepPath(1)); err == nil {
			t.Error("it is still there")
		}
		must(t, c.Close())
	}
	wantList(t, d, "1 broken, 1 broken")
	_, _, err := d.Latest(t.Context())
	wantErr(t, "Latest", err, ErrCorrupt)
	for step := int64(2); step < 6; step++ {
		save(t, attempt(t, m, 2, Policy{Last: 2}), testState(step, 0))
	}
	wantList(t, d, "1 broken, 1 broken, 4 committed, 5 committed") // the broken ones stay so that the user can look at them
}

func failReads(_ int, op vfstest.Op) vfstest.Fault {
	if op.Kind == "read" && strings.Contains(op.Path, "shard-") {
		return vfstest.Fault{Err: syscall.EIO}
	}
	return vfstest.Fault{}
}

// A checkpoint that was read as damaged counts again if it is good when Reject reads it.
func TestCheckpointFoundSoundCountsAgain(t *testing.T) {
	t.Parallel()
	m := vfstest.New(t)
	d := attempt(t, m, 1, Policy{})
	save(t, d, testState(1, 0))
	c, err := d.Find(t.Context(), 1)
	must(t, err)
	d.markBad(c.id(), nil)
	wantErr(t, "Pin of what was found damaged", d.Pin(t.Context(), 1, "best"), ErrNone)
	wantErr(t, "Reject", d.Reject(t.Context(), c), errSound)
	must(t, c.Close())
	must(t, d.Pin(t.Context(), 1, "best"))
}

// If a file of a checkpoint is missing, Reject does not rename the checkpoint, but the Dir skips it from then on.
func TestRejectOfAMissingFileRenamesNothing(t *testing.T) {
	t.Parallel()
	m := vfstest.New(t)
	d := attempt(t, m, 1, Policy{})
	save(t, d, testState(1, 0))
	save(t, d, testState(2, 0))
	c, err := d.Find(t.Context(), 2)
	must(t, err)
	must(t, m.Remove(find(t, m, d.stepPath(2), "shard-")))
	must(t, d.Reject(t.Context(), c))
	must(t, c.Close())
	wantList(t, d, "1 committed, 2 broken")
	if _, err := m.Stat(d.stepPath(2)); err != nil {
		t.Error("it was renamed")
	}
}
