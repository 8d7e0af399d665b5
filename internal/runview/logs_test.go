package runview

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"ddpbatch/internal/rundir"
	"ddpbatch/internal/testkit"
	"ddpbatch/internal/testkit/fakeslurm"
	"ddpbatch/internal/text"
	"ddpbatch/internal/vfs"
	"ddpbatch/slurm"
)

// logsWorld is a run directory whose attempts the test simulates.
type logsWorld struct {
	t         *testing.T
	run       *rundir.Dir
	out, errs bytes.Buffer
	now       time.Time
}

func newLogsWorld(t *testing.T) *logsWorld {
	t.Helper()
	parent := t.TempDir()
	binary := filepath.Join(parent, "program")
	if err := os.WriteFile(binary, nil, 0o700); err != nil {
		t.Fatal(err)
	}
	run, err := rundir.Create(rundir.CreateConfig{
		Parent: filepath.Join(parent, "runs"), Spec: rundir.Spec{Schema: 1, Name: "job", Nodes: 1, WorkDir: parent, Job: []byte("{}")},
		Binary: binary, Now: time.Unix(1, 0),
	})
	if err != nil {
		t.Fatal(err)
	}
	return &logsWorld{t: t, run: run, now: time.Unix(1000, 0)}
}

func (w *logsWorld) logs(first, last int, ranks ...int) rankLogs {
	return rankLogs{
		v: &Viewer{
			Slurm: &slurm.Client{}, Now: func() time.Time { return w.now },
			From: text.Dir(w.run.Path()), Out: &w.out, Err: &w.errs, Log: slog.New(slog.NewTextHandler(&w.errs, nil)),
		},
		run: w.run, ranks: ranks, first: first, last: last,
	}
}

func (w *logsWorld) claim() {
	w.t.Helper()
	if _, err := w.run.ClaimAttempt(); err != nil {
		w.t.Fatal(err)
	}
}

// write adds to a log.
func (w *logsWorld) write(attempt int, host string, rank int, stream, text string) {
	w.t.Helper()
	f, err := os.OpenFile(w.run.LogPath(attempt, host, rank, stream), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		w.t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		w.t.Fatal(err)
	}
}

// shown checks what was printed since the last time, and clears it.
func (w *logsWorld) shown(want string) {
	w.t.Helper()
	if got := w.out.String(); got != want {
		w.t.Errorf("printed\n%q\nwant\n%q", got, want)
	}
	w.out.Reset()
}

func TestLogsShowLinesOfEachRank(t *testing.T) {
	w := newLogsWorld(t)
	if err := w.logs(1, 0).print(); err != nil || !strings.Contains(w.errs.String(), "no output yet") {
		t.Errorf("before any attempt: %v, %s", err, &w.errs)
	}
	w.claim()
	w.write(1, "n1", 0, "out", "first 0\n")
	w.write(1, "n1", 0, "err", "")
	w.write(1, "n2", 10, "err", "first 10\nhalf")
	w.write(1, "n2", 9, "out", "first 9\n")
	w.claim() // its ranks were never started
	w.claim()
	w.write(3, "n2", 10, "out", "third 10\nhal\x00f")
	w.errs.Reset()

	if err := w.logs(1, 1).print(); err != nil {
		t.Error(err)
	}
	w.shown("[n1 0] first 0\n[n2 9] first 9\n[n2 10] first 10\n[n2 10] half\n")
	if got := w.errs.String(); strings.Count(got, "==> ") != 3 || !strings.Contains(got, "==> attempts/1/logs/n2.10.err <==\n") {
		t.Errorf("the headings are %s", got)
	}
	if err := w.logs(3, 0, 10).print(); err != nil { // the bytes of a single rank are printed unchanged
		t.Error(err)
	}
	w.shown("third 10\nhal\x00f")
	if err := w.logs(1, 0, 9, 10).print(); err != nil {
		t.Error(err)
	}
	w.shown("[n2 9] first 9\n[n2 10] first 10\n[n2 10] half\n[n2 10] third 10\n[n2 10] hal\x00f\n")
	for _, missing := range []rankLogs{w.logs(1, 1, 5), w.logs(2, 2), w.logs(9, 9), w.logs(3, 3, 0, 1)} {
		if err := missing.print(); !errors.Is(err, errNoLogs) {
			t.Errorf("attempt %d, ranks %v: %v", missing.first, missing.ranks, err)
		}
	}
}

// Followed ranks are shown while they write, from attempt to attempt, and nothing is lost between two attempts.
func TestLogsFollowEveryAttempt(t *testing.T) {
	w := newLogsWorld(t)
	f := &following{rankLogs: w.logs(1, 0), attempt: 1}
	look := func() error { // later by the time after which a folder is looked at again
		w.now = w.now.Add(statePoll)
		return f.more()
	}
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ok(look()) // nothing exists yet
	w.claim()
	w.write(1, "n1", 0, "out", "one\nhal")
	ok(look())
	w.shown("[n1 0] one\n")
	w.write(1, "n1", 0, "out", "f\n")
	ok(f.more()) // known files are read in between looks at folders
	w.shown("[n1 0] half\n")
	w.write(1, "n1", 1, "err", "late comer\n")
	ok(f.more())
	w.shown("")
	ok(look())
	w.shown("[n1 1] late comer\n")
	// between two looks, one attempt ends, a second one is over at once, and a third begins
	w.write(1, "n1", 0, "out", "last words")
	w.write(1, "n1", 2, "out", "never seen before\n")
	w.claim()
	w.write(2, "n1", 0, "out", "second\n")
	w.claim()
	w.write(3, "n2", 0, "out", "third\n")
	ok(look())
	w.shown("[n1 2] never seen before\n[n1 0] last words\n[n1 0] second\n[n2 0] third\n")
	if got := w.errs.String(); got != "==> attempt 1 <==\n==> attempt 2 <==\n==> attempt 3 <==\n" {
		t.Errorf("the headings are %q", got)
	}
	if len(f.open) != 1 {
		t.Errorf("%d files are open", len(f.open))
	}
	ok(f.finish())

	// following one attempt ends when there is a newer one
	f = &following{rankLogs: w.logs(2, 2, 0), attempt: 2}
	if err := f.more(); !errors.Is(err, errAllShown) {
		t.Errorf("following attempt 2: %v", err)
	}
	w.shown("second\n")
	ok(f.finish())
	f = &following{rankLogs: w.logs(3, 3, 0), attempt: 3}
	ok(f.more())
	w.shown("third\n")
	ok(f.finish())
}

// When a followed run is over, the command ends with the run's exit code, and has printed everything that the run wrote.
func TestLogsFollowUntilTheEnd(t *testing.T) {
	w := newLogsWorld(t)
	w.claim()
	w.write(1, "n1", 0, "out", "one\n")
	w.claim()
	w.write(2, "n1", 0, "out", "two")
	if err := w.run.SetJobID("12"); err != nil {
		t.Fatal(err)
	}
	if err := w.run.WriteVerdict(rundir.Verdict{Attempt: 2, JobID: "12", Cause: "crash", Exit: 9, Message: "rank 0 exited"}); err != nil {
		t.Fatal(err)
	}
	err := w.logs(1, 0).follow(t.Context(), "12")
	if codeOf(err) != 9 || !strings.Contains(err.Error(), "rank 0 exited") {
		t.Errorf("error is %v", err)
	}
	w.shown("[n1 0] one\n[n1 0] two\n")
	if err := w.logs(1, 1).follow(t.Context(), "12"); err != nil { // the attempt is over, and how the job ended depends on another attempt
		t.Error(err)
	}
	w.shown("[n1 0] one\n")
}

// If one of the requested ranks printed nothing, a message names it.
func TestLogsSayWhichRankPrintedNothing(t *testing.T) {
	w := newLogsWorld(t)
	w.claim()
	for rank, text := range []string{"", "", "a line\n"} {
		w.write(1, "n1", rank, "out", text)
		w.write(1, "n1", rank, "err", "")
	}
	for _, row := range []struct {
		ranks []int
		want  string
	}{
		{nil, ""},
		{[]int{2}, ""},
		{[]int{0, 2}, "rank 0 printed nothing in attempt 1\n"},
		{[]int{1, 0}, "rank 0 printed nothing in attempt 1\nrank 1 printed nothing in attempt 1\n"},
	} {
		w.errs.Reset()
		if err := w.logs(1, 1, row.ranks...).print(); err != nil {
			t.Errorf("ranks %v: %v", row.ranks, err)
		}
		if got := strings.ReplaceAll(w.errs.String(), "==> attempts/1/logs/n1.2.out <==\n", ""); got != row.want {
			t.Errorf("ranks %v: said %q", row.ranks, got)
		}
	}
}

// The ID of an earlier job means the output of that job, and the newest attempt that began in it.
func TestLogsOfAnEarlierJob(t *testing.T) {
	w := newLogsWorld(t)
	for i, job := range []string{"12", "12", "13"} {
		w.claim()
		err := errors.Join(
			w.run.Append(rundir.Event{Time: w.now, Event: rundir.EventBegin, Attempt: i + 1, Job: job}),
			os.WriteFile(w.run.SlurmLogPath(job), []byte("log of "+job+"\n"), 0o600),
		)
		if err != nil {
			t.Fatal(err)
		}
		w.write(i+1, "n1", 0, "out", fmt.Sprintf("attempt %d\n", i+1))
	}
	const ended = "job 12 has ended; the newest job of its run is 13\n"
	for _, row := range []struct {
		o          Logs
		want, says string
	}{
		{Logs{Name: "13"}, "log of 13\n", ""},
		{Logs{Name: w.run.Path()}, "log of 13\n", ""},
		{Logs{Name: "12"}, "log of 12\n", ended},
		{Logs{Name: "12;lab", Follow: true}, "log of 12\n", ended},
		{Logs{Name: "12", OfRanks: true, Ranks: []int{0}}, "attempt 2\n", ended},
		{Logs{Name: "12", OfRanks: true, Ranks: []int{0}, First: 1, Last: 1}, "attempt 1\n", ended},
		{Logs{Name: "13", OfRanks: true, Ranks: []int{0}}, "attempt 3\n", ""},
	} {
		w.errs.Reset()
		if err := w.logs(0, 0).v.ShowLogs(t.Context(), w.run, "13", row.o); err != nil {
			t.Errorf("%+v: %v", row.o, err)
		}
		w.shown(row.want)
		if got, _, _ := strings.Cut(w.errs.String(), "==> "); got != row.says {
			t.Errorf("%+v: said %q", row.o, got)
		}
	}
	err := w.logs(0, 0).v.ShowLogs(t.Context(), w.run, "13", Logs{Name: "11", OfRanks: true})
	if !errors.Is(err, errNoLogs) || err.Error() != "job 11 has no log: no attempt began in it" {
		t.Errorf("a job that began nothing: %v", err)
	}
}

// When one element of an array is resumed, the array's job goes on for the other elements. It is not an earlier job until the array is
// submitted again.
func TestLogsOfAnArrayWhoseElementWasResumed(t *testing.T) {
	a := fakeslurm.NewArray(t, "0-1")
	a.Submitted("12")
	element := a.Ran(1, "12", 1)
	a.Submitted("13", element)
	named := func(job, want string) {
		t.Helper()
		id, err := NewestJob(a.Run)
		a.Must(err)
		if got := earlierJob(a.Run, id, job); got != want {
			t.Errorf("%s of an array whose newest job is %s: %q is earlier, want %q", job, id, got, want)
		}
	}
	named("12", "")
	named("13", "")
	a.Submitted("14")
	named("12", "12")
	named("13", "13")
	named("14", "")
}

// A pipe without a writer, or a device, with the name of a log causes an error at once.
func TestLogThatIsAPipeIsRefused(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{pipe, "/dev/zero"} {
		done := make(chan error, 1)
		go func() { done <- (&tailer{path: path, to: &bytes.Buffer{}}).copy() }()
		select {
		case err := <-done:
			if !errors.Is(err, vfs.ErrNotRegular) {
				t.Errorf("%s: %v", path, err)
			}
		case <-time.After(testkit.Patience):
			t.Fatalf("%s is waited for", path)
		}
	}
}
