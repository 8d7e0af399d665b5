package checkpoint

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"ddpbatch/checkpoint/internal/manifest"
	"ddpbatch/internal/testkit"
	"ddpbatch/internal/testkit/thin"
	"ddpbatch/internal/testkit/vfstest"
)

// resumes lets an attempt find the checkpoint that it resumes from, and begin.
func resumes(t *testing.T, d *Dir) (step int64) {
	t.Helper()
	c, err := d.FindForResume(t.Context())
	must(t, err)
	defer c.Close()
	must(t, c.Verify(t.Context()))
	must(t, d.Begin(t.Context(), c))
	return c.Step()
}

// TestStaleZombieRemovesNothing cuts attempt 1 off, so that its client does not see attempt 2. Attempt 2 begins from step 40 and dies
// before its first commit. Attempt 1 then saves more, after which its own policy would remove step 40. Attempt 3 must find step 40 and the
// checkpoint before it. The same holds after a restart within attempt 1 on the same client.
func TestStaleZombieRemovesNothing(t *testing.T) {
	t.Parallel()
	for _, first := range []int64{30, 20} { // without and with a removal before attempt 1 is cut off
		m := vfstest.New(t)
		view := vfstest.NewView(m, 1)
		one := attempt(t, view, 1, Policy{Last: 2})
		begin(t, one, -1)
		for step := first; step <= 40; step += 10 {
			save(t, one, testState(step, 1))
		}
		view.Hold()
		begin(t, attempt(t, m, 2, Policy{Last: 2}), 40)
		for _, d := range []*Dir{one, attempt(t, view, 1, Policy{Last: 2})} {
			must(t, d.Begin(t.Context(), nil))
			for _, step := range []int64{50, 60} {
				info, err := d.Save(t.Context(), testState(step, 1))
				if !errors.Is(err, ErrFenced) || !info.Committed {
					t.Fatalf("a save of step %d by the zombie: committed is %v, error %v", step, info.Committed, err)
				}
			}
		}

		three := attempt(t, m, 3, Policy{Last: 2})
		if step := resumes(t, three); step != 40 {
			t.Errorf("attempt 3 goes on from step %d, want 40", step)
		}
		s, err := three.Load(t.Context(), 30)
		must(t, err)
		wantState(t, s, testState(30, 1))
	}
}

// TestStaleZombieNeverRemovesWhatCounts stops attempt 1 before each operation of three saves, which remove three checkpoints. From then on
// its client does not see what others do. Attempt 2 begins and dies. After attempt 1 has continued, every checkpoint that counted when
// attempt 2 began must still be there.
func TestStaleZombieNeverRemovesWhatCounts(t *testing.T) { // without the race detector
	t.Parallel()
	for k := 1; ; k += thin.Step(5) {
		m := vfstest.New(t)
		view := vfstest.NewView(m, 1)
		base := attempt(t, view, 1, Policy{Last: 2})
		begin(t, base, -1)
		save(t, base, testState(10, 1))
		save(t, base, testState(20, 1))
		asleep, wake, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
		in := vfstest.NewInjector(view, func(i int, _ vfstest.Op) vfstest.Fault {
			if i != k {
				return vfstest.Fault{}
			}
			close(asleep)
			return vfstest.Fault{Wait: wake}
		})
		one := openDir(t, Options{FS: in, Run: "r", Attempt: 1, Keep: Policy{Last: 2}})
		go func() {
			defer close(done)
			for _, step := range []int64{30, 40, 50} {
				one.Save(t.Context(), testState(step, 1)) // it may fail or commit: either way it counts for nothing
			}
		}()
		select {
		case <-asleep:
		case <-done:
			if k < 50 {
				t.Fatalf("three saves took less than %d operations", k)
			}
			return
		}
		view.Hold()
		two := attempt(t, m, 2, Policy{Last: 2})
		from := resumes(t, two)
		list, err := two.List(t.Context())
		must(t, err)
		list = slices.DeleteFunc(list, func(i Info) bool { return i.State != StateCommitted })
		close(wake)
		testkit.Within(t, testkit.Patience, func() { <-done })

		three := attempt(t, m, 3, Policy{Last: 2})
		if step := resumes(t, three); step != from {
			t.Fatalf("asleep before operation %d: attempt 3 goes on from step %d, attempt 2 from %d", k, step, from)
		}
		for _, info := range list {
			s, err := three.Load(t.Context(), info.Step)
			if err != nil {
				t.Fatalf("asleep before operation %d (%s): step %d: %v", k, in.Log()[k-1], info.Step, err)
			}
			wantState(t, s, testState(info.Step, 1))
		}
		if len(list) < 2 {
			t.Fatalf("asleep before operation %d: only %v counted", k, list)
		}
	}
}

// stopped returns a disk on which attempt 1 ended between the two renames of the removal of step 10.
func stopped(t *testing.T) (m *vfstest.Mem, gate string) {
	t.Helper()
	m = vfstest.New(t)
	f := func(_ int, op vfstest.Op) vfstest.Fault {
		if op.Kind == "rename" && strings.HasSuffix(op.To, manifest.DeletingName) {
			return vfstest.Fault{Err: syscall.EIO}
		}
		return vfstest.Fault{}
	}
	one := attempt(t, vfstest.NewInjector(m, f), 1, Policy{Last: 2})
	begin(t, one, -1)
	for _, step := range []int64{10, 20, 30} {
		save(t, one, testState(step, 1))
	}
	wantList(t, one, "10 partial, 20 committed, 30 committed")
	return m, one.gate(1)
}

// The next attempt undoes a removal that ended in the gate if the checkpoint is whole.
func TestRemovalThatEndedInTheGateIsUndone(t *testing.T) {
	t.Parallel()
	m, gate := stopped(t)
	two := attempt(t, m, 2, Policy{Last: 2})
	if step := resumes(t, two); step != 30 {
		t.Errorf("attempt 2 goes on from step %d, want 30", step)
	}
	wantList(t, two, "10 committed, 20 committed, 30 committed")
	if info, err := m.Stat(gate); err != nil || info.IsDir() {
		t.Errorf("the gate is not closed: %v", err)
	}
	save(t, two, testState(40, 2))
	wantList(t, two, "30 committed, 40 committed")

	m, gate = stopped(t)
	must(t, m.Remove(find(t, m, two.stepPath(10), "shard-"))) // the checkpoint is not whole, whatever the cause
	two = attempt(t, m, 2, Policy{Last: 2})
	resumes(t, two)
	save(t, two, testState(40, 2))
	wantList(t, two, "30 committed, 40 committed")
}

// A file in the gate that is not ddpbatch's stays, and the attempt does not begin.
func TestBeginLeavesOthersFileInTheGate(t *testing.T) {
	t.Parallel()
	m, gate := stopped(t)
	vfstest.Put(t, m, filepath.Join(gate, "notes"), []byte("x"))
	_, err := attempt(t, m, 2, Policy{Last: 2}).FindForResume(t.Context())
	if err == nil || !strings.Contains(err.Error(), gate+" does not become empty: remove what is in it") {
		t.Errorf("error %v", err)
	}
	if got := string(vfstest.Read(t, m, filepath.Join(gate, "notes"))); got != "x" {
		t.Errorf("the file holds %q", got)
	}
}

// An attempt does not begin from a checkpoint that an earlier attempt has just removed.
func TestBeginRefusesWhatIsGone(t *testing.T) {
	t.Parallel()
	m := vfstest.New(t)
	one := attempt(t, m, 1, Policy{Last: 2})
	save(t, one, testState(10, 1))
	two := attempt(t, m, 2, Policy{Last: 2})
	c, err := two.FindLatest(t.Context())
	must(t, err)
	defer c.Close()
	save(t, one, testState(20, 1))
	save(t, one, testState(30, 1))
	wantErr(t, "Begin", two.Begin(t.Context(), c), ErrNone)
	wantList(t, two, "20 committed, 30 committed")
	if step := resumes(t, two); step != 30 {
		t.Errorf("attempt 2 goes on from step %d, want 30", step)
	}
}

// The operating system refuses what the file system in memory refuses.
func TestGateHoldsOnARealDisk(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "checkpoints")
	open := func(attempt int) *Dir {
		d, err := Open(path, Options{Run: "r", Attempt: attempt, Keep: Policy{Last: 2}})
		must(t, err)
		return d
	}
	committed := func(want ...int64) {
		t.Helper()
		list, err := open(0).List(t.Context())
		must(t, err)
		var got []int64
		for _, info := range list {
			got = append(got, info.Step)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("left are steps %v, want %v", got, want)
		}
	}
	one := open(1)
	begin(t, one, -1)
	for _, step := range []int64{10, 20, 30} {
		save(t, one, testState(step, 1))
	}
	committed(20, 30)
	if step := resumes(t, open(2)); step != 30 {
		t.Errorf("attempt 2 goes on from step %d, want 30", step)
	}
	must(t, os.Remove(filepath.Join(path, manifest.RecordName(2, one.run)))) // so only the gate shows attempt 2
	_, err := one.Save(t.Context(), testState(40, 1))
	wantErr(t, "Save", err, ErrFenced)
	committed(20, 30, 40)
}

var errNewer = errors.New("attempts/2 exists")

// An attempt that was superseded before its save began changes nothing that counts.
func TestSupersededSaveChangesNothing(t *testing.T) {
	t.Parallel()
	m := vfstest.New(t)
	live := openDir(t, Options{FS: m, Keep: Policy{Last: 2}, Run: "r", Attempt: 2})
	for step := range int64(3) {
		save(t, live, testState(step, 0))
	}
	zombie := openDir(t, Options{FS: m, Keep: Policy{Last: 2}, Run: "r", Attempt: 1, Fence: func() error { return errNewer }})
	for _, step := range []int64{1, 2, 9} { // two existing steps and a newer one
		info, err := zombie.Save(context.Background(), testState(step, 1))
		wantErr(t, "Save", err, ErrFenced, errNewer)
		if info.Committed {
			t.Errorf("step %d: reported as committed", step)
		}
	}
	s, info, err := live.Latest(context.Background())
	must(t, err)
	if info.Step != 2 || info.Attempt != 2 {
		t.Errorf("the latest is step %d of attempt %d", info.Step, info.Attempt)
	}
	wantState(t, s, testState(2, 0))
	must(t, VerifyStep(context.Background(), live, 1))

	// The current attempt removes what the zombie wrote.
	save(t, live, testState(10, 0))
	save(t, live, testState(11, 0))
	for _, path := range tree(t, m) {
		if _, ok := manifest.OwnFile(path[strings.LastIndex(path, "/")+1:], zombie.run); ok && !strings.Contains(path, ".2-") {
			t.Errorf("%s stays", path)
		}
	}
}

// TestClosedFenceStopsEveryRemoval closes the fence at its j-th call, for every j. From then on the save removes and renames nothing.
func TestClosedFenceStopsEveryRemoval(t *testing.T) {
	t.Parallel()
	for j := 1; ; j++ {
		m := vfstest.New(t)
		before := openDir(t, Options{FS: m, Keep: Policy{Last: 2}, Run: "r", Attempt: 1})
		save(t, before, testState(1, 0))
		save(t, before, testState(2, 0))
		in := vfstest.NewInjector(m, nil)
		asked, closedAt := 0, -1
		d := openDir(t, Options{FS: in, Keep: Policy{Last: 2}, Run: "r", Attempt: 2, Fence: func() error {
			if asked++; asked < j {
				return nil
			}
			if closedAt < 0 {
				closedAt = len(in.Log())
			}
			return errNewer
		}})
		info, err := d.Save(context.Background(), testState(3, 0))
		if closedAt < 0 {
			must(t, err)
			if j < 5 {
				t.Fatalf("a save with a prune asked its fence only %d times", asked)
			}
			return
		}
		wantErr(t, "Save", err, ErrFenced)
		if info.Committed != (j > 2) { // call 1 comes before the folder is made, call 2 before the commit
			t.Fatalf("fence closed at question %d: committed is %v", j, info.Committed)
		}
		for _, op := range in.Log()[closedAt:] {
			if op.Kind == "remove" || op.Kind == "rename" {
				t.Fatalf("fence closed at question %d: %v", j, op)
			}
		}
		_, latest, err := before.Latest(context.Background())
		must(t, err)
		if latest.Step != 2+min(1, int64(j-1)/2) {
			t.Fatalf("fence closed at question %d: the latest is step %d", j, latest.Step)
		}
	}
}
