package checkpoint

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"ddpbatch/checkpoint/internal/manifest"
	"ddpbatch/internal/testkit/vfstest"
	"ddpbatch/internal/vfs"
)

// listed returns the result of List as text: "step state" for each checkpoint.
func listed(t *testing.T, d *Dir) string {
	t.Helper()
	list, err := d.List(context.Background())
	must(t, err)
	var out []string
	for _, info := range list {
		if filepath.Dir(info.Path) != testPath || info.Committed != (info.State == StateCommitted) {
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

func TestKeepLastKeepsTheNewest(t *testing.T) {
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
			d := openDir(t, Options{FS: vfstest.New(t), Keep: Policy{Last: test.keep}})
			for step := int64(10); step <= 50; step += 10 {
				save(t, d, testState(step, 0))
			}
			wantList(t, d, test.want)
		})
	}
}

// TestForeignFilesStay puts foreign files and folders everywhere, and saves until all older checkpoints of the run are pruned.
func TestForeignFilesStay(t *testing.T) {
	t.Parallel()
	m := vfstest.New(t)
	d := openDir(t, Options{FS: m, Keep: Policy{Last: 2}, Run: "mine", Attempt: 5})
	save(t, d, testState(10, 0))
	foreign := []string{
		"README", "step-000000000005", // a file with the name of a checkpoint's folder
		"step-10/MANIFEST.json", "step-000000000010.bak/MANIFEST.json", "step-000000000010.broken/shard",
		"step-000000000010/notes.txt", "step-000000000010/shard-00000-of-00001.ddpt",
		"step-000000000010/shard-00000-of-00001.4-00000000-00000001.ddpt", // of another run
		"step-000000000010/sub/file",
		// Its name is that of a checkpoint's folder, but the package did not make its file.
		"step-000000000011/keep.me",
		"step-000000000012/shard-00000-of-00001.6-" + fmt.Sprintf("%08x", d.run) + "-00000001.ddpt", // of a later attempt
	}
	for _, name := range foreign {
		path := filepath.Join(testPath, name)
		if dir := filepath.Dir(path); dir != testPath {
			mkdirAll(t, m, dir)
		}
		vfstest.Put(t, m, path, []byte("precious"))
	}
	// This is a whole checkpoint of another run that was copied in.
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
	must(t, VerifyStep(context.Background(), other, 20))
	wantList(t, d, "10 partial, 10 broken, 12 partial, 20 committed, 50 committed, 60 committed")
	if slices.ContainsFunc(files, func(f string) bool { return strings.Contains(f, "000000000010/MANIFEST") }) {
		t.Errorf("step 10 was not pruned: %v", files)
	}
}

func mkdirAll(t *testing.T, m *vfstest.Mem, dir string) {
	t.Helper()
	if _, err := m.Stat(dir); err == nil {
		return
	}
	mkdirAll(t, m, filepath.Dir(dir))
	must(t, m.Mkdir(dir))
}

// Attempt 2 removes what attempt 1 has left when it commits a checkpoint, and not before.
func TestLeftoversOfDeadAttemptsAreCleared(t *testing.T) {
	t.Parallel()
	m := vfstest.New(t)
	run := openDir(t, Options{FS: m}).run
	dead := func(attempt int, nonce uint32) manifest.Tag {
		return manifest.Tag{Attempt: attempt, Run: run, Nonce: nonce}
	}
	d := openDir(t, Options{FS: m, Keep: Policy{Last: 2}, Attempt: 2})
	save(t, openDir(t, Options{FS: m, Keep: Policy{Last: 2}, Attempt: 1}), testState(10, 0))
	left := []string{
		manifest.StepFolder(10) + "/" + dead(1, 7).ShardName(0, 1),                      // an unfinished second save of step 10
		manifest.StepFolder(10) + "/" + dead(1, 7).ManifestTmp(),                        //
		manifest.StepFolder(10) + "/" + dead(2, 7).ShardName(0, 1) + manifest.TmpSuffix, // of the running attempt
		manifest.StepFolder(20) + "/" + dead(1, 8).ShardName(0, 1) + manifest.TmpSuffix,
		manifest.StepFolder(30) + "/" + dead(1, 9).ShardName(0, 1),
		manifest.StepFolder(50) + "/" + dead(1, 9).ShardName(0, 1), // a step after the next commit, but of a dead attempt
	}
	for _, name := range left {
		path := filepath.Join(testPath, name)
		mkdirAll(t, m, filepath.Dir(path))
		vfstest.Put(t, m, path, []byte("part"))
	}
	must(t, m.Mkdir(d.stepPath(25))) // its attempt died before its first file
	wantList(t, d, "10 committed, 20 partial, 25 partial, 30 partial, 50 partial")
	save(t, d, testState(40, 0))
	wantList(t, d, "10 committed, 40 committed")
	var stay []string
	for _, name := range left {
		if _, err := m.Stat(filepath.Join(testPath, name)); err == nil {
			stay = append(stay, name)
		}
	}
	if want := left[2:3]; !slices.Equal(stay, want) {
		t.Errorf("these stay: %v, want %v", stay, want)
	}
}

// The attempt that began a removal finishes it if it was interrupted.
func TestInterruptedRemovalIsFinished(t *testing.T) {
	t.Parallel()
	m := vfstest.New(t)
	d := openDir(t, Options{FS: m, Keep: Policy{Last: 2}, Attempt: 1})
	save(t, d, testState(1, 0))
	must(t, m.Rename(d.stepPath(1)+"/"+manifest.Name, d.stepPath(1)+"/"+manifest.DeletingName))
	wantList(t, d, "1 partial")
	save(t, d, testState(2, 0))
	wantList(t, d, "2 committed")

	// A save of the same step replaces such a folder.
	must(t, m.Rename(d.stepPath(2)+"/"+manifest.Name, d.stepPath(2)+"/"+manifest.DeletingName))
	save(t, d, testState(2, 1))
	wantList(t, d, "2 committed")
	if files := saved(t, m); len(files) != 3 {
		t.Errorf("left behind: %v", files)
	}
}

// After a fallback, retention does not count the corrupt checkpoint.
func TestBadOnesTakeNoGoodOnesPlace(t *testing.T) {
	t.Parallel()
	m := vfstest.New(t)
	before := openDir(t, Options{FS: m, Keep: Policy{Last: 2}, Attempt: 1})
	save(t, before, testState(10, 0))
	save(t, before, testState(20, 0))
	shard := find(t, m, before.stepPath(20), "shard-")
	vfstest.Put(t, m, shard, flip(vfstest.Read(t, m, shard), 8*80)) // the size of the shard is still right

	d := openDir(t, Options{FS: m, Keep: Policy{Last: 2}, Attempt: 2})
	_, info, err := d.Latest(context.Background())
	must(t, err)
	if info.Step != 10 {
		t.Fatalf("fell back to step %d", info.Step)
	}
	save(t, d, testState(30, 0))
	wantList(t, d, "10 committed, 20 committed, 30 committed")
	must(t, VerifyStep(context.Background(), d, 10))
	save(t, d, testState(40, 0))
	wantList(t, d, "30 committed, 40 committed")
}

// A bad step that is saved again counts.
func TestBadStepThatIsSavedAgainCounts(t *testing.T) {
	t.Parallel()
	m := vfstest.New(t)
	d := openDir(t, Options{FS: m, Keep: Policy{Last: 2}, Attempt: 1})
	for _, step := range []int64{10, 20, 30} {
		save(t, d, testState(step, 0))
	}
	shard := find(t, m, d.stepPath(30), "shard-")
	vfstest.Put(t, m, shard, []byte("short"))
	wantList(t, d, "20 committed, 30 broken")
	_, _, err := d.Latest(context.Background())
	must(t, err)
	save(t, d, testState(30, 1))
	s, _, err := d.Latest(context.Background())
	must(t, err)
	wantState(t, s, testState(30, 1))
	wantList(t, d, "20 committed, 30 broken, 30 committed")
	save(t, d, testState(40, 0))
	wantList(t, d, "30 committed, 40 committed")
	if files := saved(t, m); len(files) != 6 {
		t.Errorf("the broken save stays: %v", files)
	}
}

// Prune in another process of the same attempt does not remove the folder of a save in progress. It does remove an old empty folder.
func TestPruneTakesNoFolderFromASave(t *testing.T) {
	t.Parallel()
	m := vfstest.New(t)
	d := attempt(t, m, 3, Policy{})
	dr, err := d.NewDraft(t.Context(), 100)
	must(t, err)
	must(t, m.Mkdir(testPath+"/"+manifest.FreshFolder(100, 2, 1))) // of an earlier attempt
	prune := func(age time.Duration, want int) {
		t.Helper()
		_, err := attempt(t, aged{m, d.now().Add(-age)}, 3, Policy{}).Prune(t.Context(), Policy{})
		must(t, err)
		if files := tree(t, m); len(files) != want {
			t.Errorf("there are %v", files)
		}
	}
	prune(emptyAge-time.Second, 1)
	_, err = attempt(t, m, 3, Policy{}).Prune(t.Context(), Policy{}) // the file system does not know any times
	must(t, err)
	_, err = dr.WriteShard(t.Context(), 0, 1, testState(100, 0).pieces())
	must(t, err)
	dr.Abort()
	must(t, m.Mkdir(d.stepPath(200)))
	prune(emptyAge, 0)
}

// aged is a file system on which every file has the same time.
type aged struct {
	vfs.FS
	at time.Time
}

type agedInfo struct {
	fs.FileInfo
	at time.Time
}

func (a aged) Stat(name string) (fs.FileInfo, error) {
	info, err := a.FS.Stat(name)
	return agedInfo{info, a.at}, err
}

func (a agedInfo) ModTime() time.Time { return a.at }

// Of two saves of a step, Prune keeps the one that counts, even if its manifest can only be read at the second look. If that save is gone
// by then, Prune still succeeds.
func TestSecondLookIsInOrder(t *testing.T) {
	t.Parallel()
	for _, gone := range []bool{false, true} {
		m := vfstest.New(t)
		save(t, attempt(t, m, 1, Policy{}), testState(100, 1))
		two := attempt(t, m, 2, Policy{})
		begin(t, two, 100)
		counts := save(t, two, testState(100, 2))
		save(t, two, testState(110, 2))
		path := counts.Path + "/" + manifest.Name
		good := vfstest.Read(t, m, path)
		reads, lists := 0, 0
		in := vfstest.NewInjector(m, func(_ int, op vfstest.Op) vfstest.Fault {
			switch {
			case op.Kind == "open" && op.Path == path:
				if reads++; reads == 1 {
					vfstest.Put(t, m, path, flip(good, 8*50))
				} else {
					vfstest.Put(t, m, path, good)
				}
			case op.Kind == "readdir" && op.Path == counts.Path:
				if lists++; lists == 2 && gone {
					must(t, m.Rename(counts.Path, testPath+"/elsewhere"))
				}
			}
			return vfstest.Fault{}
		})
		_, err := attempt(t, in, 2, Policy{}).Prune(t.Context(), Policy{Last: 2})
		must(t, err)
		if reads == 0 || lists < 2 {
			t.Fatalf("%d reads and %d lists: the test tests nothing", reads, lists)
		}
		wantList(t, two, "100 committed, 110 committed")
		if gone {
			continue
		}
		s, err := two.Load(t.Context(), 100)
		must(t, err)
		wantState(t, s, testState(100, 2))
	}
}

// Retention keeps for an unreadable checkpoint only those checkpoints that may be its base, and logs how many it keeps for that reason.
func TestUnreadableCheckpointKeepsFewOthers(t *testing.T) {
	t.Parallel()
	steps := []int64{10, 20, 30, 40, 50, 60}
	for name, test := range map[string]struct {
		run     string
		attempt int
		kinds   []string // the operations that fail
		part    string
		want    string
		stay    string
	}{
		"another run's": {"other", 1, []string{"open"}, "/" + manifest.Name, "50 committed, 60 committed, 999 unreadable", ""},
		"ours": {"r", 2, []string{"open"}, "/" + manifest.Name,
			"10 committed, 20 committed, 30 committed, 40 committed, 50 committed, 60 committed, 999 unreadable", "stay=4"},
		"of an attempt before":     {"r", 1, []string{"open"}, "/" + manifest.Name, "50 committed, 60 committed, 999 unreadable", ""},
		"that cannot be listed":    {"other", 1, []string{"readdir"}, "", "50 committed, 60 committed, 999 unreadable", ""},
		"not listed, of few steps": {"r", 1, []string{"readdir"}, "", "30 committed, 35 unreadable, 50 committed, 60 committed", "stay=1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := vfstest.New(t)
			step := int64(999)
			if strings.HasSuffix(name, "few steps") {
				step = 35
			}
			save(t, openDir(t, Options{FS: m, Run: test.run, Attempt: test.attempt}), testState(step, 0))
			f := &fault{kinds: test.kinds, part: manifest.StepFolder(step) + test.part, err: syscall.EACCES, on: true}
			var log strings.Builder
			d := openDir(t, Options{FS: f.over(m), Run: "r", Attempt: 2, Keep: Policy{Last: 2}, Log: logTo(&log)})
			for _, step := range steps {
				save(t, d, testState(step, 1))
			}
			wantList(t, d, test.want)
			if got := strings.Contains(log.String(), "old checkpoints are kept"); got != (test.stay != "") ||
				!strings.Contains(log.String(), test.stay) {
				t.Errorf("the log says %q", &log)
			}
		})
	}
}

// beside is a file system whose Mkdir calls the function made after it has made a folder.
type beside struct {
	vfs.FS
	made func(path string)
}

func (b beside) Mkdir(path string) error {
	err := b.FS.Mkdir(path)
	if err == nil {
		b.made(path)
	}
	return err
}

// The sweep of one save does not remove the folder that another save of the same process has just made.
func TestSweepSparesASaveBesideIt(t *testing.T) {
	t.Parallel()
	m := vfstest.New(t)
	var d *Dir
	d = attempt(t, beside{m, func(path string) {
		if strings.HasSuffix(path, manifest.StepFolder(200)) {
			save(t, d, testState(100, 1))
		}
	}}, 1, Policy{Last: 2})
	save(t, d, testState(200, 1))
	wantList(t, d, "100 committed, 200 committed")
	if len(d.drafts) > 0 {
		t.Errorf("these are still taken for being written: %v", d.drafts)
	}
}

// For an unchanged checkpoint, retention lists the folder once and looks at the manifest once, however many shards it has. It does not look
// at the record of an earlier attempt.
func TestRetentionReadsOnlyWhatIsNew(t *testing.T) {
	t.Parallel()
	const kept, shards, records = 6, 8, 20
	m := vfstest.New(t)
	for a := 1; a <= records; a++ {
		begin(t, attempt(t, m, a, Policy{}), -1)
	}
	in := vfstest.NewInjector(aged{m, time.Unix(1e9, 0)}, nil)
	d := attempt(t, in, records, Policy{Last: kept})
	for step := int64(1); step <= kept+3; step++ {
		seen := len(in.Log())
		_, err := split(t, d, testState(step, 0), shards, nil, Commit{})
		must(t, err)
		if step < kept+3 {
			continue
		}
		n := map[string]int{}
		for _, op := range in.Log()[seen:] {
			if op.Kind == "readdir" || op.Kind == "open" || op.Kind == "stat" && !strings.HasSuffix(op.Path, manifest.TmpSuffix) {
				n[op.Kind]++
			}
		}
		// Retention looks at the sizes of the new checkpoint's shards and at the manifest of each other checkpoint. It lists every
		// checkpoint once, and the one that it removes twice. It opens the record of this attempt.
		if n["stat"] > shards+kept+4 || n["readdir"] > kept+10 || n["open"] > 2 {
			t.Errorf("the save has %v, with %d kept of %d shards", n, kept, shards)
		}
	}
	if got := strings.Count(listed(t, d), "committed"); got != kept {
		t.Errorf("%d are there", got)
	}

	// Retention reads a manifest again if its size or time has changed, and notices that a shard is missing from the list.
	changed := d.stepPath(kept) + "/" + manifest.Name
	vfstest.Put(t, m, changed, append(vfstest.Read(t, m, changed), ' '))
	must(t, m.Remove(find(t, m, d.stepPath(kept+1), "shard-00003")))
	_, err := split(t, d, testState(100, 0), shards, nil, Commit{})
	must(t, err)
	wantList(t, d, "4 committed, 5 committed, 6 broken, 7 broken, 8 committed, 9 committed, 100 committed")
}
