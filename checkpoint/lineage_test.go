package checkpoint

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"ddpbatch/checkpoint/internal/manifest"
	"ddpbatch/internal/testkit/vfstest"
	"ddpbatch/internal/vfs"
)

// attempt opens the folder as attempt n of run "r".
func attempt(t *testing.T, fsys vfs.FS, n int, keep Policy) *Dir {
	return openDir(t, Options{FS: fsys, Run: "r", Attempt: n, Keep: keep})
}

// begin lets an attempt begin from the checkpoint of a step, or anew if the step is -1.
func begin(t *testing.T, d *Dir, step int64) {
	t.Helper()
	if step < 0 {
		must(t, d.Begin(t.Context(), nil))
		return
	}
	c, err := d.Find(t.Context(), step)
	must(t, err)
	must(t, d.Begin(t.Context(), c))
	must(t, c.Close())
}

// Once a later attempt has resumed from a step, what an earlier attempt has saved or still saves beyond that step is superseded. It is
// removed when the later attempt has enough checkpoints of its own.
func TestSupersededSavesCountForNothing(t *testing.T) {
	t.Parallel()
	m := vfstest.New(t)
	one := attempt(t, m, 1, Policy{})
	begin(t, one, -1)
	for _, step := range []int64{100, 200, 300} {
		save(t, one, testState(step, 1))
	}
	view := vfstest.NewView(m, 1)
	view.Hold()
	zombie := attempt(t, view, 1, Policy{}) // its client does not see what others do from now on
	two := attempt(t, m, 2, Policy{Last: 3})
	begin(t, two, 200)
	save(t, zombie, testState(400, 1))
	wantList(t, two, "100 committed, 200 committed, 300 superseded, 400 superseded")
	latest := func(want int64, variant int) {
		t.Helper()
		s, info, err := two.Latest(t.Context())
		must(t, err)
		if info.Step != want {
			t.Fatalf("the latest is step %d, want %d", info.Step, want)
		}
		wantState(t, s, testState(want, variant))
	}
	latest(200, 1)
	s, err := two.Load(t.Context(), 300) // Load returns a superseded step if it is named
	must(t, err)
	wantState(t, s, testState(300, 1))
	decisions, err := two.Plan(t.Context(), Policy{Last: 2})
	must(t, err)
	if got := decisions[2].Reasons[0]; got != "superseded, with fewer than 2 of later attempts" {
		t.Errorf("step 300 stays because %q", got)
	}

	save(t, two, testState(250, 2))
	wantList(t, two, "100 committed, 200 committed, 250 committed, 300 superseded, 400 superseded")
	latest(250, 2)
	save(t, two, testState(300, 2))
	save(t, zombie, testState(300, 1))
	latest(300, 2)
	save(t, two, testState(350, 2)) // now there are as many as the policy keeps
	wantList(t, two, "250 committed, 300 committed, 350 committed")
}

// A restart within an attempt does not make a superseded checkpoint count again.
func TestRestartRevivesNothingSuperseded(t *testing.T) {
	t.Parallel()
	m := vfstest.New(t)
	one := attempt(t, m, 1, Policy{})
	save(t, one, testState(100, 1))
	save(t, one, testState(200, 1))
	two := attempt(t, m, 2, Policy{})
	begin(t, two, 100)
	save(t, two, testState(300, 2))
	begin(t, two, 300)
	wantList(t, two, "100 committed, 200 superseded, 300 committed")
	begin(t, two, -1)
	wantList(t, two, "100 superseded, 200 superseded, 300 committed")
}

// A checkpoint of another run that was copied in counts until the run begins from something else, whatever the number of the other run's
// attempt is. For the other run it still counts after that.
func TestOtherRunsCheckpointCountsUntilBegin(t *testing.T) {
	t.Parallel()
	m := vfstest.New(t)
	pretrain := openDir(t, Options{FS: m, Run: "pretrain", Attempt: 7})
	save(t, pretrain, testState(500, 0))
	one := attempt(t, m, 1, Policy{})
	begin(t, one, 500)
	wantList(t, one, "500 committed")
	save(t, one, testState(500, 1)) // the run saves at the step that it began from
	s, _, err := attempt(t, m, 2, Policy{}).Latest(t.Context())
	must(t, err)
	wantState(t, s, testState(500, 1))

	two := attempt(t, m, 2, Policy{})
	begin(t, two, -1)
	save(t, two, testState(10, 1))
	wantList(t, two, "10 committed, 500 superseded, 500 superseded")
	c, err := attempt(t, m, 3, Policy{}).FindLatest(t.Context())
	must(t, err)
	if c.Step() != 10 {
		t.Errorf("attempt 3 goes on from step %d of run %q", c.Step(), c.Info().Run)
	}
	must(t, c.Close())
	c, err = pretrain.FindLatest(t.Context())
	must(t, err)
	if c.Step() != 500 || c.Info().Run != "pretrain" {
		t.Errorf("its own run goes on from step %d of run %q", c.Step(), c.Info().Run)
	}
	must(t, c.Close())
}

// Two runs in one folder whose attempts have the same numbers neither write nor obey each other's records.
func TestRunsObeyTheirOwnRecordsOnly(t *testing.T) {
	t.Parallel()
	m := vfstest.New(t)
	a := openDir(t, Options{FS: m, Run: "a", Attempt: 1})
	save(t, a, testState(50, 0))
	save(t, a, testState(60, 0))
	begin(t, openDir(t, Options{FS: m, Run: "a", Attempt: 2}), 50)
	wantList(t, a, "50 committed, 60 superseded")
	one := attempt(t, m, 1, Policy{})
	save(t, one, testState(100, 1))
	save(t, one, testState(200, 1))
	begin(t, attempt(t, m, 2, Policy{}), 100)
	wantList(t, one, "50 committed, 60 superseded, 100 committed, 200 superseded")
	begin(t, attempt(t, m, 2, Policy{}), -1)
	wantList(t, one, "50 superseded, 60 superseded, 100 superseded, 200 superseded")
	wantList(t, a, "50 committed, 60 superseded, 100 superseded, 200 superseded") // run a resumed from 50, not from 100 or 200
	begin(t, openDir(t, Options{FS: m, Run: "c", Attempt: 1}), 200)
	wantList(t, openDir(t, Options{FS: m, Run: "d"}), "50 committed, 60 superseded, 100 superseded, 200 superseded")
}

// Begin refuses a zombie that chose its checkpoint before a later attempt began, and would record its choice after that. If the zombie's
// client does not show the later attempt, Begin succeeds, but what the later attempt resumed from still counts.
func TestLateBeginOfAZombieIsRefused(t *testing.T) {
	t.Parallel()
	m := vfstest.New(t)
	one := attempt(t, m, 1, Policy{})
	begin(t, one, -1)
	save(t, one, testState(100, 1))
	two := attempt(t, m, 2, Policy{})
	c, err := two.FindLatest(t.Context()) // then attempt 2 reads for a long time
	must(t, err)
	save(t, one, testState(200, 1))
	view := vfstest.NewView(m, 1)
	view.Hold()
	blind := attempt(t, view, 2, Policy{})
	begin(t, attempt(t, m, 3, Policy{}), 200) // attempt 3 dies before its first save
	before := tree(t, m)
	wantErr(t, "Begin", two.Begin(t.Context(), c), ErrFenced)
	if after := tree(t, m); !slices.Equal(before, after) {
		t.Errorf("a refused Begin has changed %v to %v", before, after)
	}
	must(t, blind.Begin(t.Context(), c))
	must(t, c.Close())
	got, err := attempt(t, m, 4, Policy{}).FindLatest(t.Context())
	must(t, err)
	if got.Step() != 200 {
		t.Errorf("attempt 3 has gone on from step 200, attempt 4 finds %d", got.Step())
	}
	must(t, got.Close())
}

// A later attempt removes what it has given up only when it has as many checkpoints of its own as the policy keeps.
func TestSupersededStayUntilEnoughAreSaved(t *testing.T) {
	t.Parallel()
	m := vfstest.New(t)
	one := attempt(t, m, 1, Policy{})
	for _, step := range []int64{100, 200, 300} {
		save(t, one, testState(step, 1))
	}
	two := attempt(t, m, 2, Policy{Last: 2, Every: 100})
	begin(t, two, -1)
	save(t, two, testState(10, 2))
	wantList(t, two, "10 committed, 100 superseded, 200 superseded, 300 superseded")
	save(t, two, testState(20, 2))
	wantList(t, two, "10 committed, 20 committed")
}

func TestDamagedRecordIsSkippedWithAWarning(t *testing.T) {
	t.Parallel()
	m := vfstest.New(t)
	one := attempt(t, m, 1, Policy{})
	save(t, one, testState(100, 0))
	begin(t, attempt(t, m, 2, Policy{}), -1)
	path := testPath + "/" + manifest.RecordName(2, runCRC("r"))
	vfstest.Put(t, m, path, flip(vfstest.Read(t, m, path), 300))
	var log strings.Builder
	d := openDir(t, Options{FS: m, Log: logTo(&log)})
	wantList(t, d, "100 committed")
	if !strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), path) {
		t.Errorf("the log says %q", &log)
	}
	begin(t, attempt(t, m, 2, Policy{}), -1) // writes the record again
	wantList(t, one, "100 superseded")
}

func TestBeginIsFenced(t *testing.T) {
	t.Parallel()
	m := vfstest.New(t)
	asked := 0
	d := openDir(t, Options{FS: m, Attempt: 1, Fence: func() error { // it closes after the first check and before the rename
		if asked++; asked > 1 {
			return errNewer
		}
		return nil
	}})
	wantErr(t, "Begin", d.Begin(t.Context(), nil), ErrFenced, errNewer)
	for _, path := range tree(t, m) {
		if strings.HasSuffix(path, manifest.RecordName(1, runCRC(""))) {
			t.Error("a record was written")
		}
	}
	if err := openDir(t, Options{FS: m}).Begin(t.Context(), nil); err == nil {
		t.Error("attempt 0 begins")
	}
}

// After a crash at any operation of Begin, the record is whole or does not exist, and every checkpoint is as good as before.
func TestCrashOfBeginLeavesNoHalfRecord(t *testing.T) {
	t.Parallel()
	for k := 0; ; k++ {
		m := vfstest.New(t)
		save(t, attempt(t, m, 1, Policy{}), testState(100, 0))
		in := vfstest.NewInjector(m, vfstest.CrashAfter(k))
		err := attempt(t, in, 2, Policy{}).Begin(context.Background(), nil)
		for seed := range uint64(8) {
			after := attempt(t, crashed(m, seed), 3, Policy{})
			got := listed(t, after)
			if got != "100 superseded" && (err == nil || got != "100 committed") {
				t.Fatalf("crash after operation %d, seed %d: %s, Begin said %v", k, seed, got, err)
			}
			must(t, VerifyStep(t.Context(), after, 100))
			begin(t, after, -1)
		}
		if err == nil {
			t.Logf("%d operations", k)
			return
		}
		if !errors.Is(err, vfstest.ErrCrashed) {
			t.Fatal(err)
		}
	}
}

// An attempt whose saves would count for nothing gets an error before it trains, and before it writes anything.
func TestOutrankedAttemptEndsBeforeItTrains(t *testing.T) {
	t.Parallel()
	m := vfstest.New(t)
	five := attempt(t, m, 5, Policy{})
	begin(t, five, -1)
	save(t, five, testState(100, 5))
	one := attempt(t, m, 1, Policy{})
	before := tree(t, m)
	c, err := one.FindLatest(t.Context())
	must(t, err)
	wantErr(t, "Begin", one.Begin(t.Context(), c), ErrFenced)
	must(t, c.Close())
	for what, d := range map[string]*Dir{"an earlier attempt": one, "a tool": openDir(t, Options{FS: m, Run: "r"})} {
		for _, step := range []int64{100, 110} {
			_, err := d.NewDraft(t.Context(), step)
			wantErr(t, what, err, ErrFenced)
			if !strings.Contains(err.Error(), "attempt 5 of the run has begun, without a checkpoint") ||
				!strings.Contains(err.Error(), "end this one") {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
	if after := tree(t, m); !slices.Equal(before, after) {
		t.Errorf("%v has become %v", before, after)
	}
	save(t, openDir(t, Options{FS: m, Run: "another", Attempt: 1}), testState(7, 0)) // attempt 5 does not stop another run
}

// The same holds if a later attempt without a record has saved the step.
func TestOutrankedStepIsRefused(t *testing.T) {
	t.Parallel()
	m := vfstest.New(t)
	save(t, attempt(t, m, 2, Policy{}), testState(100, 2))
	_, err := attempt(t, m, 1, Policy{}).NewDraft(t.Context(), 100)
	wantErr(t, "NewDraft", err, ErrFenced)
	if files := tree(t, m); len(files) != 3 {
		t.Errorf("there are %v", files)
	}
}

// If the record of another run cannot be read, it stops neither the search nor the retention of this run. An unreadable record of this run
// stops its search.
func TestOthersBadRecordStopsNothing(t *testing.T) {
	t.Parallel()
	for run, stops := range map[string]bool{"other": false, "r": true} {
		m := vfstest.New(t)
		begin(t, openDir(t, Options{FS: m, Run: run, Attempt: 1}), -1)
		f := &fault{kinds: []string{"open"}, part: manifest.RecordName(1, runCRC(run)), err: syscall.EACCES, on: true}
		var log strings.Builder
		d := openDir(t, Options{FS: f.over(m), Run: "r", Attempt: 1, Keep: Policy{Last: 2}, Log: logTo(&log)})
		for step := int64(1); step <= 5; step++ {
			save(t, d, testState(step, 1))
		}
		c, err := d.FindLatest(t.Context())
		if stops {
			wantErr(t, "FindLatest", err, ErrPermission)
			continue
		}
		must(t, err)
		must(t, c.Close())
		wantList(t, d, "4 committed, 5 committed")
		if !strings.Contains(log.String(), "record of another run cannot be read") {
			t.Errorf("the log says %q", &log)
		}
	}
}

// Attempts 3 and 5 both began anew, so GivenUp reports what attempts before attempt 5 have saved. It does not report the saves of
// attempt 5, of a later attempt or of another run.
func TestAttemptBegunAnewCountsItsOwn(t *testing.T) {
	t.Parallel()
	fsys := vfstest.NewMem()
	for _, attempt := range []int{3, 5} {
		d, err := Open("/checkpoints", Options{FS: fsys, Run: "r", Attempt: attempt})
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Begin(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		run     string
		attempt int
		want    bool
	}{{"r", 1, true}, {"r", 4, true}, {"r", 5, false}, {"r", 6, false}, {"other", 1, false}} {
		d, err := Open("/checkpoints", Options{FS: fsys, Run: test.run})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := d.GivenUp(t.Context(), test.attempt, 10); got != test.want || err != nil {
			t.Errorf("run %s, attempt %d: %v, %v", test.run, test.attempt, got, err)
		}
	}
}

// GivenUp stops reading records when its context is canceled.
func TestSearchOfRecordsEndsWithItsContext(t *testing.T) {
	t.Parallel()
	m := vfstest.New(t)
	begin(t, attempt(t, m, 1, Policy{}), -1)
	ctx, cancel := context.WithCancel(t.Context())
	in := vfstest.NewInjector(m, func(_ int, op vfstest.Op) vfstest.Fault {
		if _, _, ok := manifest.ParseRecordName(filepath.Base(op.Path)); ok {
			cancel()
		}
		return vfstest.Fault{}
	})
	_, err := attempt(t, in, 2, Policy{}).GivenUp(ctx, 1, 10)
	wantErr(t, "GivenUp", err, context.Canceled)
	_, err = attempt(t, m, 2, Policy{}).GivenUp(ctx, 1, 10)
	wantErr(t, "GivenUp, cancelled before", err, context.Canceled)
}
