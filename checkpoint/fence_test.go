package checkpoint

import (
	"context"
	"errors"
	"strings"
	"testing"

	"ddpbatch/checkpoint/internal/manifest"
	"ddpbatch/internal/testkit/vfstest"
	"ddpbatch/internal/vfs"
)

var errNewer = errors.New("attempts/2 exists")

// TestZombie: an attempt that was superseded before its save began changes nothing that counts.
func TestZombie(t *testing.T) {
	t.Parallel()
	m := vfstest.New(t)
	live := openDir(t, Options{FS: m, Keep: Policy{Last: 2}, Run: "r", Attempt: 2})
	for step := range int64(3) {
		save(t, live, testState(step, 0))
	}
	zombie := openDir(t, Options{FS: m, Keep: Policy{Last: 2}, Run: "r", Attempt: 1, Fence: func() error { return errNewer }})
	for _, step := range []int64{1, 2, 9} { // existing ones, and a newer one
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
	must(t, live.Verify(context.Background(), 1, true))

	// The current attempt clears away what the zombie wrote.
	save(t, live, testState(10, 0))
	save(t, live, testState(11, 0))
	for _, path := range tree(t, m) {
		if _, ok := manifest.OwnFile(path[strings.LastIndex(path, "/")+1:], zombie.run); ok && !strings.Contains(path, ".2-") {
			t.Errorf("%s stays", path)
		}
	}
}

// TestFenceClosesAnywhere closes the fence at its j-th question, for every j: from then on nothing
// is removed and no manifest is renamed.
func TestFenceClosesAnywhere(t *testing.T) {
	t.Parallel()
	for j := 1; ; j++ {
		m := vfstest.New(t)
		before := openDir(t, Options{FS: m, Keep: Policy{Last: 2}, Run: "r", Attempt: 1})
		save(t, before, testState(1, 0))
		save(t, before, testState(2, 0))
		in := vfs.NewInjector(m, nil)
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
		if info.Committed != (j > 2) { // the first question is before the folder is made, the second the commit's
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
