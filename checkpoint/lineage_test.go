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

// attempt opens the folder as an attempt of one run.
func attempt(t *testing.T, fsys vfs.FS, n int, keep Policy) *Dir {
	return openDir(t, Options{FS: fsys, Run: "r", Attempt: n, Keep: keep})
}

// begin lets an attempt go on from a step; -1: from nothing.
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

// TestSupersededSavesCountForNothing: what an earlier attempt has saved, or saves later, beyond the step that a later
// one went on from counts for nothing, and goes once that has a checkpoint.
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
	zombie := attempt(t, view, 1, Policy{}) // whose client sees nothing of what others do from now on
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
	s, err := two.Load(t.Context(), 300) // who asks for the very step gets it
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
	save(t, two, testState(350, 2)) // as many as the policy wants
	wantList(t, two, "250 committed, 300 committed, 350 committed")
}

// TestRestartRevivesNothingSuperseded: a restart within an attempt does not bring back what was superseded.
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

// TestOtherRunsCheckpointCountsUntilBegin: one that was copied in counts until the run itself goes on from
// something else, whatever its attempt is; to its own run it counts all the same.
func TestOtherRunsCheckpointCountsUntilBegin(t *testing.T) {
	t.Parallel()
	m := vfstest.New(t)
	pretrain := openDir(t, Options{FS: m, Run: "pretrain", Attempt: 7})
	save(t, pretrain, testState(500, 0))
	one := attempt(t, m, 1, Policy{})
	begin(t, one, 500)
	wantList(t, one, "500 committed")
	save(t, one, testState(500, 1)) // at the start
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

// TestRunsObeyTheirOwnRecordsOnly: two runs in one folder, whose attempts have the same numbers, neither write
// nor obey each other's records.
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
	wantList(t, a, "50 committed, 60 superseded, 100 superseded, 200 superseded") // run a went on from 50, not from those
	begin(t, openDir(t, Options{FS: m, Run: "c", Attempt: 1}), 200)
	wantList(t, openDir(t, Options{FS: m, Run: "d"}), "50 committed, 60 superseded, 100 superseded, 200 superseded")
}

// TestLateBeginOfAZombieIsRefused: a zombie that chose what to go on from before a later attempt did, and would record it
// afterwards, is refused; one whose view does not show that does not give up what the later one has gone
// on from.
func TestLateBeginOfAZombieIsRefused(t *testing.T) {
	t.Parallel()
	m := vfstest.New(t)
	one := attempt(t, m, 1, Policy{})
	begin(t, one, -1)
	save(t, one, testState(100, 1))
	two := attempt(t, m, 2, Policy{})
	c, err := two.FindLatest(t.Context()) // then it reads for a long time
	must(t, err)
	save(t, one, testState(200, 1))
	view := vfstest.NewView(m, 1)
	view.Hold()
	blind := attempt(t, view, 2, Policy{})
	begin(t, attempt(t, m, 3, Policy{}), 200) // and dies before its first save
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

// TestSupersededStayUntilEnoughAreSaved: a later attempt needs as many checkpoints of its own as the policy wants
// before it removes what it has given up.
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
	begin(t, attempt(t, m, 2, Policy{}), -1) // and written anew
	wantList(t, one, "100 superseded")
}

func TestBeginIsFenced(t *testing.T) {
	t.Parallel()
	m := vfstest.New(t)
	asked := 0
	d := openDir(t, Options{FS: m, Attempt: 1, Fence: func() error { // closed between the question and the rename
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

// TestCrashOfBeginLeavesNoHalfRecord: after a crash anywhere the record is whole or not there, and what was
// committed is as good as before.
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

// TestOutrankedAttemptEndsBeforeItTrains: an attempt whose saves would count for nothing hears of it before it trains, and
// before it writes.
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
	save(t, openDir(t, Options{FS: m, Run: "another", Attempt: 1}), testState(7, 0)) // to another run that says nothing
}

// TestOutrankedStepIsRefused: likewise where a later attempt without a record has saved the step.
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

// TestOthersBadRecordStopsNothing: another run's record that cannot be read, or is newer, stops neither the search nor the
// retention of this one; its own does.
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

// TestAttemptBegunAnewCountsItsOwn: attempt 3 began anew, attempt 5 goes on from nothing of before either; what they save
// themselves counts.
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

// TestSearchOfRecordsEndsWithItsContext: a resume that is canceled while it reads the records reads no further ones.
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
