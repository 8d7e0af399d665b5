package exposition

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ddpbatch/internal/rundir"
	"ddpbatch/internal/testkit"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// begun returns a run whose second attempt has begun.
func begun(t *testing.T) *rundir.Dir {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "program")
	must(t, os.WriteFile(binary, []byte("#!/bin/sh\n"), 0o755))
	run, err := rundir.Create(rundir.CreateConfig{
		Parent: t.TempDir(),
		Spec: rundir.Spec{Name: "digits", Kind: "slurm", Version: "v0", WorkDir: "/secret/work", Nodes: 2,
			Job: json.RawMessage(`{"a":1}`)},
		JobFile: []byte("schema = 1\n"), Binary: binary, Now: time.Now(),
	})
	must(t, err)
	now := time.Now()
	for _, e := range []rundir.Event{
		{Time: now.Add(-300 * time.Second), Event: rundir.EventSubmit, Detail: "job 12"},
		{Time: now.Add(-200 * time.Second), Event: rundir.EventBegin, Attempt: 1, Job: "12"},
		{Time: now.Add(-100 * time.Second), Event: rundir.EventEnd, Attempt: 1, Job: "12", Cause: "start"},
		{Time: now.Add(-100 * time.Second), Event: rundir.EventRequeue, Attempt: 1},
		{Time: now.Add(-50 * time.Second), Event: rundir.EventBegin, Attempt: 2, Job: "12", Start: 1},
	} {
		must(t, run.Append(e))
	}
	return run
}

// quiet returns a Note that fails the test when it is called.
func quiet(t *testing.T) func(string, ...any) {
	return func(format string, args ...any) { t.Errorf("told: "+format, args...) }
}

// TestFileShowsTheRunUntilItsEnd: the figures are those of the ledger and the metrics, collectors can read the file, and the file is
// removed at the end.
func TestFileShowsTheRunUntilItsEnd(t *testing.T) {
	run, folder, said := begun(t), t.TempDir(), &testkit.Journal{}
	must(t, os.WriteFile(run.MetricsPath(), []byte(`{"attempt":2,"step":40,"samples_per_s":9.5}`+"\n"), 0o600))
	ctx, cancel := context.WithCancel(t.Context())
	stop := Start(ctx, Config{Labels: digits, Dir: run, Folder: folder, Log: said.Logger(), Note: quiet(t)})
	path := filepath.Join(folder, "ddpbatch-12_3.prom")
	testkit.Eventually(t, "the file is there", func() bool { _, err := os.Stat(path); return err == nil })
	cancel() // this asks the run to stop, which takes a while
	text, err := os.ReadFile(path)
	must(t, err)
	got := values(t, text, prometheus, digits)
	for key, want := range map[string]float64{
		"ddpbatch_attempt": 2, "ddpbatch_restarts_total": 1, "ddpbatch_step": 40, "ddpbatch_samples_per_second": 9.5,
		"ddpbatch_time_seconds/queued": 150, "ddpbatch_time_seconds/lost": 100, "ddpbatch_lost_seconds/start": 100,
	} {
		if got[key] < want || got[key] > want+0.01 {
			t.Errorf("%s is %v, want %v", key, got[key], want)
		}
	}
	info, err := os.Stat(path)
	must(t, err)
	if info.Mode() != 0o644 {
		t.Errorf("the file's mode is %v", info.Mode())
	}
	if strings.Contains(string(text), filepath.Dir(run.Path())) || strings.Contains(string(text), "secret") {
		t.Errorf("a path is shown:\n%s", text)
	}
	stop()
	if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
		t.Errorf("%v, %v are left", left, err)
	}
	if lines := said.Lines(); len(lines) > 0 {
		t.Errorf("said: %q", lines)
	}
}

func TestFiguresAreTakenEveryHalfMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin, steps, said := time.Now(), int64(0), &testkit.Journal{}
		gather := func(now time.Time) (figures, error) {
			if want := begin.Add(time.Duration(steps) * 30 * time.Second); !now.Equal(want) || !time.Now().Equal(want) {
				t.Errorf("figures are taken for %v at %v, want %v", now, time.Now(), want)
			}
			steps++
			if steps == 2 {
				return figures{}, errors.New("stale file handle")
			}
			return figures{newest: &rundir.Metrics{Step: steps}}, nil
		}
		path := filepath.Join(t.TempDir(), "ddpbatch-12_3.prom")
		c := Config{Labels: digits, Folder: filepath.Dir(path), Log: said.Logger(), Note: quiet(t)}
		stop := newExporter(c, gather).start(t.Context(), c)
		for _, want := range []float64{1, 1, 3, 4} { // the second time the figures are missing, and the previous ones stay
			synctest.Wait()
			text, err := os.ReadFile(path)
			must(t, err)
			if got := values(t, text, prometheus, digits)["ddpbatch_step"]; got != want {
				t.Errorf("step %v, want %v", got, want)
			}
			time.Sleep(every)
		}
		stop()
		if lines := said.Lines(); len(lines) != 1 || !strings.Contains(lines[0], "stale file handle") {
			t.Errorf("said: %q", lines)
		}
	})
}

// TestFileSystemThatHangsHoldsUpNoEnd: the file is removed even if a file system hangs.
func TestFileSystemThatHangsHoldsUpNoEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, answer := true, make(chan struct{})
		gather := func(time.Time) (figures, error) {
			if !first {
				<-answer
			}
			first = false
			return figures{}, nil
		}
		folder, said := t.TempDir(), &testkit.Journal{}
		c := Config{Labels: digits, Folder: folder, Log: said.Logger(), Note: quiet(t)}
		stop := newExporter(c, gather).start(t.Context(), c)
		time.Sleep(every + time.Second)
		if there, err := os.ReadDir(folder); err != nil || len(there) != 1 {
			t.Errorf("%v, %v; want the file", there, err)
		}
		begin := time.Now()
		stop()
		if took := time.Since(begin); took != stopLimit {
			t.Errorf("the end took %v, want %v", took, stopLimit)
		}
		close(answer)
		synctest.Wait()
		if left, err := os.ReadDir(folder); err != nil || len(left) > 0 || len(said.Lines()) > 0 {
			t.Errorf("%v, %v are left; said: %q", left, err, said.Lines())
		}
	})
}

// TestWhatCannotBeShownIsOneWarning: however long the run goes on, what cannot be shown causes one warning.
func TestWhatCannotBeShownIsOneWarning(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer taken.Close()
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	inTheWay := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(inTheWay, "ddpbatch-12_3.prom", "sub"), 0o700))
	for name, test := range map[string]struct {
		change func(c *Config)
		want   string
	}{
		"no folder":            {func(c *Config) { c.Folder = "/nowhere/at/all" }, "no such file or directory"},
		"a file":               {func(c *Config) { c.Folder = file }, "not a directory"},
		"a folder's name":      {func(c *Config) { c.Folder = inTheWay }, "ddpbatch-12_3.prom"},
		"a port that is taken": {func(c *Config) { c.Listen = netip.MustParseAddrPort(taken.Addr().String()) }, "address already in use"},
		"another machine's":    {func(c *Config) { c.Listen = netip.MustParseAddrPort("192.0.2.1:9400") }, "192.0.2.1:9400"},
	} {
		said := &testkit.Journal{}
		c := Config{Labels: digits, Log: said.Logger(), Note: quiet(t)}
		test.change(&c)
		e := newExporter(c, func(time.Time) (figures, error) { return trained(), nil })
		stop := e.start(t.Context(), c)
		testkit.Eventually(t, name+": a warning", func() bool { return len(said.Lines()) > 0 })
		e.update(t.Context())
		stop()
		lines := said.Lines()
		if len(lines) != 1 || !strings.Contains(lines[0], test.want) || !strings.Contains(lines[0], "the run goes on") {
			t.Errorf("%s: %q, want one line with %q", name, lines, test.want)
		}
	}
	if _, err := os.Stat(filepath.Join(inTheWay, "ddpbatch-12_3.prom", "sub")); err != nil {
		t.Error(err)
	}
}

// TestFileFollowsNoLink: another user who can also write to the folder cannot make this user write elsewhere.
func TestFileFollowsNoLink(t *testing.T) {
	folder, target := t.TempDir(), filepath.Join(t.TempDir(), "precious")
	must(t, os.WriteFile(target, []byte("precious"), 0o600))
	must(t, os.Symlink(target, filepath.Join(folder, "ddpbatch-12_3.prom")))
	said := &testkit.Journal{}
	e := newExporter(Config{Labels: digits, Folder: folder, Log: said.Logger()}, func(time.Time) (figures, error) { return trained(), nil })
	e.update(t.Context())
	if text, err := os.ReadFile(target); err != nil || string(text) != "precious" {
		t.Errorf("the link's target is %q, %v", text, err)
	}
	text, err := os.ReadFile(e.path)
	must(t, err)
	values(t, text, prometheus, digits)
	e.remove()
	if left, err := os.ReadDir(folder); err != nil || len(left) > 0 || len(said.Lines()) > 0 {
		t.Errorf("%v, %v are left; said: %q", left, err, said.Lines())
	}
}

func TestFileHasANameOfTheJob(t *testing.T) {
	for of, want := range map[Labels]string{
		{ID: "12"}: "ddpbatch-12.prom", {ID: "12_3"}: "ddpbatch-12_3.prom", {ID: "../x;y\n"}: "ddpbatch-..-x-y-.prom",
		{Run: "r-1"}: "ddpbatch-r-1.prom",
		{ID: "é@["}:  "ddpbatch----.prom", {ID: strings.Repeat("9", 300)}: "ddpbatch-" + strings.Repeat("9", 64) + ".prom",
	} {
		if got := newExporter(Config{Labels: of, Folder: "/d"}, nil).path; got != "/d/"+want {
			t.Errorf("%+v: %s, want %s", of, got, want)
		}
	}
}
