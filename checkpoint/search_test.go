package checkpoint

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"ddpbatch/checkpoint/internal/manifest"
	"ddpbatch/internal/testkit/vfstest"
)

// If a checkpoint is removed while a reader searches, the reader searches again, since there are newer ones then.
func TestRemovalMakesReadersLookAgain(t *testing.T) {
	t.Parallel()
	m := vfstest.New(t)
	w := attempt(t, m, 1, Policy{Last: 2, Every: 100})
	for _, step := range []int64{100, 110, 120} {
		save(t, w, testState(step, 0))
	}
	next, last := int64(130), int64(140)
	in := vfstest.NewInjector(m, func(_ int, op vfstest.Op) vfstest.Fault {
		for op.Kind == "open" && strings.HasSuffix(op.Path, manifest.Name) && next <= last {
			save(t, w, testState(next, 0))
			next += 10
		}
		if next == last+10 && last == 140 && op.Kind == "readdir" && op.Path == testPath {
			next, last = 150, 160 // once more, during the second search
		}
		return vfstest.Fault{}
	})
	c, err := openDir(t, Options{FS: in}).FindLatest(t.Context())
	must(t, err)
	if c.Step() != 160 {
		t.Errorf("the latest is step %d, of which 120 was there at the start and 160 at the end", c.Step())
	}
	must(t, c.Close())
}

// While a manifest is in the gate, its checkpoint's folder does not have it. A reader whose list of names is older than the checkpoints
// saved after that one searches again.
func TestManifestInTheGateMakesReadersLookAgain(t *testing.T) {
	t.Parallel()
	m := vfstest.New(t)
	asleep, wake, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	w := attempt(t, vfstest.NewInjector(m, func(_ int, op vfstest.Op) vfstest.Fault {
		if op.Kind != "rename" || !strings.HasSuffix(op.To, manifest.DeletingName) {
			return vfstest.Fault{}
		}
		close(asleep)
		return vfstest.Fault{Wait: wake}
	}), 1, Policy{Last: 2})
	save(t, w, testState(100, 0))
	began := false
	in := vfstest.NewInjector(m, func(_ int, op vfstest.Op) vfstest.Fault {
		if op.Kind == "open" && strings.HasSuffix(op.Path, manifest.Name) && !began {
			began = true
			go func() {
				defer close(done)
				for _, step := range []int64{200, 300} {
					if _, err := w.Save(t.Context(), testState(step, 0)); err != nil {
						t.Errorf("step %d: %v", step, err)
					}
				}
			}()
			select {
			case <-asleep:
			case <-done: // the saves have failed
			}
		}
		return vfstest.Fault{}
	})
	c, err := openDir(t, Options{FS: in, Run: "r"}).FindLatest(t.Context())
	close(wake)
	<-done
	must(t, err)
	if c.Step() != 300 {
		t.Errorf("the latest is step %d, want 300", c.Step())
	}
	must(t, c.Close())
}

// A removal that a dead process has begun does not make a reader search forever.
func TestHalfRemovedEndsASearch(t *testing.T) {
	t.Parallel()
	m := vfstest.New(t)
	d := attempt(t, m, 1, Policy{})
	save(t, d, testState(100, 0))
	save(t, d, testState(200, 0))
	must(t, m.Rename(d.stepPath(200)+"/"+manifest.Name, d.stepPath(200)+"/"+manifest.DeletingName))
	lists := 0
	in := vfstest.NewInjector(m, func(_ int, op vfstest.Op) vfstest.Fault {
		if op.Kind == "readdir" && op.Path == testPath {
			lists++
		}
		return vfstest.Fault{}
	})
	c, err := attempt(t, in, 2, Policy{}).FindLatest(t.Context())
	must(t, err)
	if c.Step() != 100 || lists > 2 {
		t.Errorf("the latest is step %d, after %d looks", c.Step(), lists)
	}
	must(t, c.Close())
}

// rejected damages the checkpoint of a step and lets an attempt reject it.
func rejected(t *testing.T, m *vfstest.Mem, d *Dir, step int64) {
	t.Helper()
	c, err := d.Find(t.Context(), step)
	must(t, err)
	shard := find(t, m, c.path(), "shard-")
	vfstest.Put(t, m, shard, flip(vfstest.Read(t, m, shard), 8*100))
	must(t, d.Reject(t.Context(), c))
	must(t, c.Close())
}

// A run that has lost all its checkpoints does not begin anew by itself. If the user has let it begin anew, its next attempts may do so,
// too.
func TestRunThatLostAllDoesNotBeginAnew(t *testing.T) {
	t.Parallel()
	look := func(m *vfstest.Mem, n int, want error, remove string) {
		t.Helper()
		_, err := attempt(t, m, n, Policy{}).FindLatest(t.Context())
		if !errors.Is(err, want) || errors.Is(err, ErrNone) == errors.Is(err, ErrCorrupt) {
			t.Errorf("attempt %d: %v, want %v", n, err, want)
		}
		if want == ErrCorrupt && (!strings.Contains(err.Error(), remove) || strings.Contains(err.Error(), "never")) {
			t.Errorf("%v does not say to remove %s", err, remove)
		}
	}
	const aside = "to begin anew, remove step-000000000100.broken)"
	m := vfstest.New(t)
	look(m, 1, ErrNone, "")
	one := attempt(t, m, 1, Policy{})
	begin(t, one, -1)
	look(m, 2, ErrNone, "") // attempt 1 died before its first save
	save(t, one, testState(100, 1))
	save(t, one, testState(200, 1))
	two := attempt(t, m, 2, Policy{})
	begin(t, two, 100) // as if 200 could not be read
	rejected(t, m, attempt(t, m, 3, Policy{}), 100)
	look(m, 3, ErrCorrupt, "remove "+manifest.RecordName(2, runCRC("r"))+", step-000000000100.broken)") // 200 is whole but superseded
	begin(t, attempt(t, m, 4, Policy{}), -1)
	look(m, 5, ErrNone, "") // attempt 4 has begun anew deliberately
	save(t, attempt(t, m, 4, Policy{}), testState(10, 4))
	rejected(t, m, attempt(t, m, 5, Policy{}), 10)
	look(m, 6, ErrCorrupt, "to begin anew, remove step-000000000010.broken)")

	m = vfstest.New(t)
	save(t, attempt(t, m, 1, Policy{}), testState(100, 1))
	rejected(t, m, attempt(t, m, 2, Policy{}), 100)
	look(m, 3, ErrCorrupt, aside)
	broken := find(t, m, testPath+"/"+manifest.StepFolder(100)+".broken", manifest.Name)
	data := vfstest.Read(t, m, broken)
	vfstest.Put(t, m, broken, flip(data, 99)) // the shard's name still shows which run it is of
	look(m, 3, ErrCorrupt, aside)
	begin(t, attempt(t, m, 3, Policy{}), -1)
	look(m, 4, ErrNone, "")
}

// If a save was bad, a later one in the same folder may still be good.
func TestRejectedNameMayBeReused(t *testing.T) {
	t.Parallel()
	m := vfstest.New(t)
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

// What other runs have left does not stop a run from beginning. Neither does a folder of an unknown run, once the run has begun anew.
func TestOthersLeftoversStopNoBegin(t *testing.T) {
	t.Parallel()
	b := func(m *vfstest.Mem) error {
		_, err := openDir(t, Options{FS: m, Run: "b", Attempt: 1}).FindLatest(t.Context())
		return err
	}
	m := vfstest.New(t)
	save(t, openDir(t, Options{FS: m, Run: "a", Attempt: 1}), testState(100, 0))
	rejected(t, m, openDir(t, Options{FS: m, Run: "a", Attempt: 2}), 100)
	wantErr(t, "beside what another run has set aside", b(m), ErrNone)
	aside := find(t, m, testPath+"/"+manifest.StepFolder(100)+".broken", manifest.Name)
	must(t, m.Remove(aside)) // the shard's name still shows which run it is of
	wantErr(t, "the same less its manifest", b(m), ErrNone)

	m = vfstest.New(t)
	a := openDir(t, Options{FS: m, Run: "a", Attempt: 1})
	save(t, a, testState(100, 0))
	save(t, a, testState(200, 0))
	begin(t, openDir(t, Options{FS: m, Run: "a", Attempt: 2}), 100)
	must(t, m.Remove(find(t, m, a.stepPath(100), "shard-")))
	must(t, m.Remove(find(t, m, a.stepPath(100), manifest.Name)))
	must(t, m.RemoveDir(a.stepPath(100)))
	wantErr(t, "beside what another run has given up", b(m), ErrNone)

	m = vfstest.New(t)
	must(t, m.Mkdir(testPath))
	must(t, m.Mkdir(testPath+"/step-000000000100.broken"))
	wantErr(t, "beside a folder of an unknown run", b(m), ErrCorrupt)
	must(t, openDir(t, Options{FS: m, Run: "b", Attempt: 1}).Begin(t.Context(), nil))
	wantErr(t, "after the run has begun anew with that there", b(m), ErrNone)
}

// If all checkpoints are corrupt, the error says what to remove to begin anew.
func TestAllCorruptSaysWhatToRemove(t *testing.T) {
	t.Parallel()
	m := vfstest.New(t)
	d := attempt(t, m, 1, Policy{})
	save(t, d, testState(100, 0))
	save(t, d, testState(200, 0))
	for _, step := range []int64{100, 200} {
		path := d.stepPath(step) + "/" + manifest.Name
		vfstest.Put(t, m, path, flip(vfstest.Read(t, m, path), 99))
	}
	var log strings.Builder
	_, err := openDir(t, Options{FS: m, Run: "r", Attempt: 2, Log: logTo(&log)}).FindLatest(t.Context())
	wantErr(t, "FindLatest", err, ErrCorrupt)
	if !strings.Contains(err.Error(), "to begin anew, remove step-000000000200, step-000000000100") {
		t.Errorf("%v does not say what to remove", err)
	}
	if strings.Contains(log.String(), "using the one before it") || strings.Contains(log.String(), "skipping") {
		t.Errorf("none is used, and the log says %q", &log)
	}
}

// Find of a corrupt step does not return another step instead, and the log does not say that it does.
func TestNamedCorruptStepIsNotReplaced(t *testing.T) {
	t.Parallel()
	m := vfstest.New(t)
	save(t, attempt(t, m, 1, Policy{}), testState(100, 0))
	d := attempt(t, m, 1, Policy{})
	save(t, d, testState(200, 0))
	cutShard(t, m, "", find(t, m, d.stepPath(200), "shard-"))
	var log strings.Builder
	_, err := openDir(t, Options{FS: m, Run: "r", Attempt: 2, Log: logTo(&log)}).Find(t.Context(), 200)
	wantErr(t, "Find", err, ErrCorrupt)
	if got := log.String(); !strings.Contains(got, "corrupt") || strings.Contains(got, "the one before") ||
		strings.Contains(got, "skipping") {
		t.Errorf("log %q", got)
	}
}

// A removal that was interrupted long ago does not make Latest read the newest checkpoint twice.
func TestHalfRemovedIsReadOnce(t *testing.T) {
	t.Parallel()
	m := vfstest.New(t)
	d := attempt(t, m, 1, Policy{})
	save(t, d, testState(100, 0))
	save(t, d, testState(200, 0))
	must(t, m.Rename(d.stepPath(200)+"/"+manifest.Name, d.stepPath(200)+"/"+manifest.DeletingName))
	opened := 0
	in := vfstest.NewInjector(m, func(_ int, op vfstest.Op) vfstest.Fault {
		if op.Kind == "open" && strings.Contains(op.Path, "shard-") {
			opened++
		}
		return vfstest.Fault{}
	})
	_, info, err := attempt(t, in, 2, Policy{}).Latest(t.Context())
	must(t, err)
	if opened != 1 || info.Step != 100 {
		t.Errorf("the latest is step %d, its shard was opened %d times", info.Step, opened)
	}
}

// If a folder lists a manifest that the client's lookup does not find yet, the search waits for the manifest, for a bounded time.
func TestStaleLookupIsWaitedFor(t *testing.T) {
	t.Parallel()
	m := vfstest.New(t)
	save(t, attempt(t, m, 1, Policy{}), testState(100, 0))
	for hidden, want := range map[int]error{0: nil, 1: nil, maxSearches - 1: nil, maxSearches: ErrStale} {
		d := openDir(t, Options{FS: &late{m, map[string]int{manifest.Name: hidden}}, Run: "r", Attempt: 2})
		var waited time.Duration
		d.sleep = func(_ context.Context, d time.Duration) error { waited += d; return nil }
		c, err := d.FindLatest(t.Context())
		if !errors.Is(err, want) || (waited > 0) != (hidden > 0) || waited > 5*time.Second {
			t.Errorf("hidden %d times: error %v after waiting %v", hidden, err, waited)
		}
		if c != nil {
			must(t, c.Close())
		}
	}
}
