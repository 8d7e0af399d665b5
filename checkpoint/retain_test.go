package checkpoint

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ddpbatch/internal/vfs"
)

// listed is List as text: "step state" each.
func listed(t *testing.T, d *Dir) string {
	t.Helper()
	list, err := d.List(context.Background())
	must(t, err)
	var out []string
	for _, info := range list {
		if info.Path != d.stepPath(info.Step) || info.Committed != (info.State == StateCommitted) {
			t.Errorf("inconsistent: %+v", info)
		}
		out = append(out, fmt.Sprintf("%d %s", info.Step, info.State))
	}
	return strings.Join(out, ", ")
}

func wantList(t *testing.T, d *Dir, want string) {
	t.Helper()
	if got := listed(t, d); got != want {
		t.Errorf("the folder holds %q, want %q", got, want)
	}
}

func TestKeepLast(t *testing.T) {
	t.Parallel()
	tests := []struct {
		keep int
		want string
	}{
		{0, "10 committed, 20 committed, 30 committed, 40 committed, 50 committed"},
		{2, "40 committed, 50 committed"},
		{3, "30 committed, 40 committed, 50 committed"},
		{9, "10 committed, 20 committed, 30 committed, 40 committed, 50 committed"},
	}
	for _, test := range tests {
		t.Run(fmt.Sprint(test.keep), func(t *testing.T) {
			t.Parallel()
			d := openDir(t, Options{FS: newMem(t), KeepLast: test.keep})
			for step := int64(10); step <= 50; step += 10 {
				save(t, d, testState(step, 0))
			}
			wantList(t, d, test.want)
		})
	}
}

// TestForeignFilesStay puts files and folders of others everywhere, and saves until everything
// old is pruned.
func TestForeignFilesStay(t *testing.T) {
	t.Parallel()
	m := newMem(t)
	d := openDir(t, Options{FS: m, KeepLast: 2, Run: "mine", Attempt: 5})
	save(t, d, testState(10, 0))
	foreign := []string{
		"README", "step-000000000005", // a file with a folder's name
		"step-10/MANIFEST.json", "step-000000000010.bak/MANIFEST.json", "step-000000000010.broken/shard",
		"step-000000000010/notes.txt", "step-000000000010/shard-00000-of-00001.ddpt",
		"step-000000000010/shard-00000-of-00001.4-00000000-00000001.ddpt", // of another run
		"step-000000000010/sub/file",
		"step-000000000011/keep.me",                                                               // a folder of ours by name, with nothing of ours
		"step-000000000012/shard-00000-of-00001.6-" + checksum(d.run).String() + "-00000001.ddpt", // of a later attempt
	}
	for _, name := range foreign {
		path := filepath.Join(testPath, name)
		if dir := filepath.Dir(path); dir != testPath {
			mkdirAll(t, m, dir)
		}
		putFile(t, m, path, []byte("precious"))
	}
	// A whole checkpoint of another run, copied in.
	other := openDir(t, Options{FS: m, Run: "other", Attempt: 1})
	save(t, other, testState(20, 0))

	for step := int64(30); step <= 60; step += 10 {
		save(t, d, testState(step, 0))
	}
	files := tree(t, m)
	for _, name := range foreign {
		if !slices.Contains(files, filepath.Join(testPath, name)) {
			t.Errorf("%s is gone", name)
		}
	}
	must(t, other.Verify(context.Background(), 20))
	wantList(t, d, "10 partial, 11 partial, 12 partial, 20 committed, 50 committed, 60 committed")
	if slices.ContainsFunc(files, func(f string) bool { return strings.Contains(f, "000000000010/MANIFEST") }) {
		t.Errorf("step 10 was not pruned: %v", files)
	}
}

func mkdirAll(t *testing.T, m *vfs.Mem, dir string) {
	t.Helper()
	if _, err := m.Stat(dir); err == nil {
		return
	}
	mkdirAll(t, m, filepath.Dir(dir))
	must(t, m.Mkdir(dir))
}

// TestLeftoversOfDeadAttempts: what attempt 1 left is cleared by attempt 2 once something newer
// is committed, and not before.
func TestLeftoversOfDeadAttempts(t *testing.T) {
	t.Parallel()
	m := newMem(t)
	run := openDir(t, Options{FS: m}).run
	dead := func(attempt int, nonce uint32) tag { return tag{attempt: attempt, run: run, nonce: nonce} }
	d := openDir(t, Options{FS: m, KeepLast: 2, Attempt: 2})
	save(t, openDir(t, Options{FS: m, KeepLast: 2, Attempt: 1}), testState(10, 0))
	left := []string{
		stepName(10) + "/" + dead(1, 7).shardName(0, 1),             // unfinished second save of step 10
		stepName(10) + "/" + dead(1, 7).manifestTmp(),               //
		stepName(10) + "/" + dead(2, 7).shardName(0, 1) + tmpSuffix, // of the running attempt
		stepName(20) + "/" + dead(1, 8).shardName(0, 1) + tmpSuffix,
		stepName(30) + "/" + dead(1, 9).shardName(0, 1),
		stepName(50) + "/" + dead(1, 9).shardName(0, 1), // later than what will be committed
	}
	for _, name := range left {
		path := filepath.Join(testPath, name)
		mkdirAll(t, m, filepath.Dir(path))
		putFile(t, m, path, []byte("part"))
	}
	must(t, m.Mkdir(d.stepPath(25))) // died before its first file
	wantList(t, d, "10 committed, 20 partial, 25 partial, 30 partial, 50 partial")
	save(t, d, testState(40, 0))
	wantList(t, d, "10 committed, 40 committed, 50 partial")
	var stay []string
	for _, name := range left {
		if _, err := m.Stat(filepath.Join(testPath, name)); err == nil {
			stay = append(stay, name)
		}
	}
	if want := []string{left[2], left[5]}; !slices.Equal(stay, want) {
		t.Errorf("these stay: %v, want %v", stay, want)
	}
}

// TestInterruptedRemovalIsFinished by the very attempt that began it.
func TestInterruptedRemovalIsFinished(t *testing.T) {
	t.Parallel()
	m := newMem(t)
	d := openDir(t, Options{FS: m, KeepLast: 2, Attempt: 1})
	save(t, d, testState(1, 0))
	must(t, m.Rename(d.stepPath(1)+"/"+manifestName, d.stepPath(1)+"/"+deletingName))
	wantList(t, d, "1 partial")
	save(t, d, testState(2, 0))
	wantList(t, d, "2 committed")

	// The same step saved again over such a folder.
	must(t, m.Rename(d.stepPath(2)+"/"+manifestName, d.stepPath(2)+"/"+deletingName))
	save(t, d, testState(2, 1))
	if files := walk(t, m, d.stepPath(2)); len(files) != 2 {
		t.Errorf("left behind: %v", files)
	}
}

// TestBadOnesTakeNoGoodOnesPlace: after a fallback the corrupt checkpoint does not count.
func TestBadOnesTakeNoGoodOnesPlace(t *testing.T) {
	t.Parallel()
	m := newMem(t)
	before := openDir(t, Options{FS: m, KeepLast: 2, Attempt: 1})
	save(t, before, testState(10, 0))
	save(t, before, testState(20, 0))
	shard := find(t, m, before.stepPath(20), "shard-")
	putFile(t, m, shard, flip(readFile(t, m, shard), 8*80)) // its sizes still fit

	d := openDir(t, Options{FS: m, KeepLast: 2, Attempt: 2})
	_, info, err := d.Latest(context.Background())
	must(t, err)
	if info.Step != 10 {
		t.Fatalf("fell back to step %d", info.Step)
	}
	save(t, d, testState(30, 0))
	wantList(t, d, "10 committed, 20 committed, 30 committed")
	must(t, d.Verify(context.Background(), 10))
	save(t, d, testState(40, 0))
	wantList(t, d, "30 committed, 40 committed")
}

// TestSavedAgain: a bad step that is saved again is good again, and counts.
func TestSavedAgain(t *testing.T) {
	t.Parallel()
	m := newMem(t)
	d := openDir(t, Options{FS: m, KeepLast: 2, Attempt: 1})
	for _, step := range []int64{10, 20, 30} {
		save(t, d, testState(step, 0))
	}
	shard := find(t, m, d.stepPath(30), "shard-")
	putFile(t, m, shard, []byte("short"))
	wantList(t, d, "20 committed, 30 broken")
	_, _, err := d.Latest(context.Background())
	must(t, err)
	save(t, d, testState(30, 1))
	s, _, err := d.Latest(context.Background())
	must(t, err)
	wantState(t, s, testState(30, 1))
	if files := walk(t, m, d.stepPath(30)); len(files) != 2 {
		t.Errorf("the old shard stays: %v", files)
	}
	save(t, d, testState(40, 0))
	wantList(t, d, "30 committed, 40 committed")
}
