package checkpoint

import (
	"strings"
	"testing"

	"ddpbatch/internal/testkit/vfstest"
	"ddpbatch/internal/vfs"
)

// wantRefused wants that a save is refused as one that would count for nothing, and leaves nothing.
func wantRefused(t *testing.T, m *vfs.Mem, d *Dir, s *State) {
	t.Helper()
	before := strings.Join(tree(t, m), "\n")
	info, err := d.Save(t.Context(), s)
	wantErr(t, "Save", err, ErrFenced)
	if after := strings.Join(tree(t, m), "\n"); info.Committed || after != before {
		t.Errorf("%+v; the folder holds\n%s\nheld\n%s", info, after, before)
	}
}

// TestSaveThatWouldNotCount is refused: one of a step that a later attempt has saved, and one that a
// later attempt has given up.
func TestSaveThatWouldNotCount(t *testing.T) {
	t.Parallel()
	m := vfstest.New(t)
	one := attempt(t, m, 1, Policy{})
	save(t, one, testState(10, 1))
	tool := openDir(t, Options{FS: m, Run: "r"})
	wantRefused(t, m, tool, testState(10, 2))
	save(t, tool, testState(20, 2)) // no attempt has said anything about it
	two := attempt(t, m, 2, Policy{})
	begin(t, two, 10)
	wantRefused(t, m, one, testState(30, 1))
	wantRefused(t, m, tool, testState(30, 2))
	save(t, one, testState(5, 1)) // before what attempt 2 went on from
	save(t, openDir(t, Options{FS: m, Run: "other", Attempt: 1}), testState(10, 3))
	save(t, two, testState(10, 4))
	s, _, err := two.Latest(t.Context())
	must(t, err)
	wantState(t, s, testState(10, 4))
}
