package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/goodput"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/testkit/fakeslurm"
)

// An attempt that resumes into an unfinished evaluation writes a line of metrics before its first step. That line has no loss.
func TestStatusShowsMetricsWithoutLoss(t *testing.T) {
	for line, want := range map[string]string{
		`{"step":3,"steps":9}`:            `\s3/9\s+-\s`,
		`{"step":3,"steps":9,"loss":0.5}`: `\s3/9\s+0\.5\s`,
	} {
		q := newQueue(t)
		parent, run := q.resumable()
		q.must(os.WriteFile(must(t, rundir.Open, run).MetricsPath(), []byte(line+"\n"), 0o600))
		if code, out, errs := q.run(parent, "status", run); code != 0 || !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("%s: %d, %s%s; want %s", line, code, out, errs, want)
		}
	}
}

// The heading of an array has its own job, whatever was resumed since, and the newest job beside it.
func TestHeadingOfAnArrayHasItsOwnJob(t *testing.T) {
	a := fakeslurm.NewArray(t, "0-1")
	p := &pretendSlurm{a.Slurm, t, a.Dir}
	a.Submitted("12")
	a.Ran(0, "12", 0)
	one := a.Ran(1, "12", 3)
	heading := func(want string) {
		t.Helper()
		e, _, errs := p.env(0, 0)
		e.Terminal = func(io.Writer) (int, bool) { return 0, false }
		_, err := statusShown{names: []string{a.Run.Path()}, accounts: new(goodput.Accounts)}.show(t.Context(), e)
		if err != nil || !strings.HasPrefix(errs.String(), want) {
			t.Errorf("%v, said %q, want %q", err, errs, want)
		}
	}
	a.Queue("12_0 COMPLETED", "12_1 FAILED")
	heading("12 x: FAILED: 1 of 2 elements are done; ")
	a.Submitted("13", one)
	a.Ran(1, "13", 0)
	a.Queue("12_0 COMPLETED", "13_1 COMPLETED")
	heading("12 (newest job: 13) x: COMPLETED: all 2 elements are done")
	a.Submitted("14")
	a.Queue("14_[0-1] PENDING")
	heading("14 x: PENDING: ")
}

// An element of an array that has not begun has a row, too.
func TestStatusShowsAnElementThatHasNotBegun(t *testing.T) {
	a := fakeslurm.NewArray(t, "0-3")
	p := &pretendSlurm{a.Slurm, t, a.Dir}
	a.Submitted("12")
	a.Ran(1, "12", 3)
	if err := a.Run.Append(rundir.Event{Time: time.Now(), Event: rundir.EventCancel, Job: "12_3"}); err != nil {
		t.Fatal(err)
	}
	a.Queue("12_1 FAILED", "12_2 PENDING Priority")
	runs := filepath.Dir(a.Run.Path())
	for name, want := range map[string][]string{
		"12_2":                     {"12_2", "x", "PENDING", "Priority"},
		"12_3":                     {"12_3", "x", "CANCELLED", "canceled while it waited"},
		a.Run.Path() + "/tasks/3/": {"12_3", "x", "CANCELLED", "canceled while it waited"},
	} {
		e, out, _ := p.env(0, 0)
		e.Terminal = func(io.Writer) (int, bool) { return 0, false }
		goesOn, err := statusShown{runs: runs, names: []string{name}, accounts: new(goodput.Accounts)}.show(t.Context(), e)
		cells := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\t")
		if len(cells) < 5 || goesOn != (want[2] == "PENDING") {
			t.Errorf("%s: goes on: %v, %v, said %q", name, goesOn, err, out)
		} else if got := []string{cells[0], cells[1], cells[2], cells[len(cells)-1]}; !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	e, _, _ := p.env(0, 0)
	_, err := statusShown{runs: runs, names: []string{"12_4"}, accounts: new(goodput.Accounts)}.show(t.Context(), e)
	if err == nil || !strings.Contains(err.Error(), "its elements are 0-3") {
		t.Errorf("an element that the array does not have: %v", err)
	}
}

// Each frame of status --watch reads only the metrics that were written since the frame before.
func TestFramesReadMetricsOnce(t *testing.T) {
	run, began := fakeslurm.RunOf(t, "train", "/bin/true", ""), time.Now().Add(-time.Hour)
	for _, e := range []rundir.Event{{Time: began, Event: rundir.EventBegin},
		{Time: began.Add(time.Minute), Event: rundir.EventEnd, Cause: "done"}} {
		e.Attempt = 1
		if err := run.Append(e); err != nil {
			t.Fatal(err)
		}
	}
	line := func(step int) string {
		return fmt.Sprintf(`{"time":%q,"attempt":1,"step":%d}`+"\n", began.Add(time.Duration(step)*time.Second).Format(time.RFC3339), step)
	}
	s := statusShown{runs: t.TempDir(), names: []string{run.Path()}, asJSON: true, accounts: new(goodput.Accounts)}
	unknown := func(metrics string) float64 {
		if err := os.WriteFile(run.MetricsPath(), []byte(metrics), 0o600); err != nil {
			t.Fatal(err)
		}
		var out, errs bytes.Buffer
		if _, err := s.show(t.Context(), &env{Out: &out, Err: &errs, Dir: "/", Now: time.Now}); err != nil {
			t.Fatal(err, errs.String())
		}
		var rows []struct {
			Goodput map[string]any `json:"goodput"`
		}
		if err := json.Unmarshal(out.Bytes(), &rows); err != nil || len(rows) != 1 {
			t.Fatal(err, out.String())
		}
		return rows[0].Goodput["unknown_s"].(float64)
	}
	before := line(10) + line(20)
	if first := unknown(before); first != 0 {
		t.Fatalf("of the first frame %v s are not known", first)
	}
	if second := unknown(strings.Repeat("x", len(before)-1) + "\n"); second != 0 {
		t.Errorf("the second frame has read again what the first had read: %v s are not known", second)
	}
}

// If the ranks had saved, the reason of a cancel omits what stopped the agent and that the run does not start again.
func TestReasonOfACancelSaysThatTheRanksSaved(t *testing.T) {
	for saved, want := range map[bool]string{
		true:  "canceled; the ranks had saved",
		false: "the agent on n2 was told to stop by SIGTERM; not started again: the run was cancelled",
	} {
		run := fakeslurm.RunOf(t, "train", "/bin/true", "")
		n := must(t, (*rundir.Dir).ClaimAttempt, run)
		v := rundir.Verdict{Attempt: n, Cause: "cancelled", Exit: 75, Saved: saved, Message: "the agent on n2 was told to stop by SIGTERM"}
		if err := errors.Join(run.WriteVerdict(v), run.Append(rundir.Event{Time: time.Now(), Event: rundir.EventGiveUp, Attempt: n,
			Detail: "the run was cancelled"})); err != nil {
			t.Fatal(err)
		}
		var out, errs bytes.Buffer
		s := statusShown{runs: t.TempDir(), names: []string{run.Path()}, accounts: new(goodput.Accounts)}
		e := &env{Out: &out, Err: &errs, Dir: "/", Now: time.Now, Terminal: func(io.Writer) (int, bool) { return 0, false }}
		if _, err := s.show(t.Context(), e); err != nil {
			t.Fatal(err, errs.String())
		}
		if !strings.HasSuffix(out.String(), "\t"+want+"\n") {
			t.Errorf("saved %t:\n%s\nwant %s", saved, out.String(), want)
		}
	}
}
