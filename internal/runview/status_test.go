package runview

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/rundir"
	"ddpbatch/internal/testkit/fakeslurm"
)

// A job may end while Slurm is asked. The files that it left at its end then count together with what Slurm says about it.
func TestStatusKnowsAJobThatEndsMeanwhile(t *testing.T) {
	// back moves a file away, and makes squeue move it back before it answers
	back := func(p *fakeslurm.Slurm, path string) {
		aside := filepath.Join(p.Dir, "aside")
		p.Must(os.Rename(path, aside))
		p.First("squeue", fmt.Sprintf("mv '%s' '%s'", aside, path))
	}
	t.Run("job", func(t *testing.T) {
		p, run := fakeslurm.New(t), fakeslurm.Run(t, "")
		p.Must(run.SetJobID("12"))
		for _, exit := range []int{137, 7} { // the workers were restarted in the job, and the job ends with the second attempt
			n, err := run.ClaimAttempt()
			p.Must(err)
			says := fmt.Sprintf("rank 0 exited with code %d", exit)
			p.Must(run.WriteVerdict(rundir.Verdict{Attempt: n, JobID: "12", Cause: "crash", Exit: exit, Message: says}))
		}
		back(p, filepath.Join(run.Path(), "attempts", "2"))
		p.QueueOf(run, "12 FAILED NonZeroExitCode")
		row, err := viewerOf(p).Status(t.Context(), run)
		if err != nil || row.State != "FAILED" || row.Attempt != 2 || row.Exit == nil || *row.Exit != 7 || row.Next != "" {
			t.Errorf("%+v, %v", row, err)
		}
		if err := endOf("12", row); codeOf(err) != 7 {
			t.Errorf("--wait ends with %v", err)
		}
	})
	t.Run("element", func(t *testing.T) {
		w := newArrayWorld(t, "0-1")
		w.Submitted("12")
		w.Ran(0, "12", 0)
		back(w.Slurm, w.Ran(1, "12", 3).Path())
		w.Queue("12_0 COMPLETED", "12_1 FAILED")
		row := w.status("FAILED", 3, "1 of 2 elements are done; element 1: code 3")
		w.ends(row, "12", 3, "job 12: 1 of 2 elements did not end well\n  job 12_1: code 3")
	})
}

// Ranks that are slower than the others are named while they run.
func TestStatusNamesStragglers(t *testing.T) {
	p, run := fakeslurm.New(t), fakeslurm.Run(t, "")
	p.Must(run.SetJobID("12"))
	p.QueueOf(run, "12 RUNNING None")
	n, err := run.ClaimAttempt()
	p.Must(err)
	slow := rundir.Straggler{Rank: 1, Host: "n2", Times: 2, Part: rundir.PartInput}
	for _, list := range [][]rundir.Straggler{nil, {slow}} {
		_, err = run.AppendStepTimes(rundir.StepTimes{
			Time: time.Now(), Attempt: n, Step: 7, WindowS: 60, StepS: rundir.Seconds{1, 1}, Stragglers: list,
		}, time.Hour)
		p.Must(err)
		if row, err := viewerOf(p).Status(t.Context(), run); err != nil || !slices.Equal(row.Stragglers, list) {
			t.Errorf("%+v, %v; want %+v", row.Stragglers, err, list)
		}
	}
	// the stragglers are shown for two windows of a minute
	for later, want := range map[time.Duration][]rundir.Straggler{115 * time.Second: {slow}, 125 * time.Second: nil} {
		v := viewerOf(p)
		v.Now = func() time.Time { return time.Now().Add(later) }
		if row, err := v.Status(t.Context(), run); err != nil || !slices.Equal(row.Stragglers, want) {
			t.Errorf("%v after the newest line: %+v, %v; want %+v", later, row.Stragglers, err, want)
		}
	}
	p.Must(run.WriteVerdict(rundir.Verdict{Attempt: n, JobID: "12", Cause: "crash", Exit: 1}))
	if row, err := viewerOf(p).Status(t.Context(), run); err != nil || row.Stragglers != nil {
		t.Errorf("after its end: %+v, %v", row.Stragglers, err)
	}
}

// The end of the earlier attempt does not count as the end of a job that waits. A run that was resumed to do more is not finished.
func TestStatusOfAResumedJobIsItsOwn(t *testing.T) {
	for name, exit := range map[string]int{"failed": 7, "done, and to do more": 0} {
		t.Run(name, func(t *testing.T) {
			p, run := fakeslurm.New(t), fakeslurm.Run(t, "")
			note := func(event, detail string) {
				t.Helper()
				p.Must(run.Append(rundir.Event{Time: time.Now(), Event: event, Detail: detail}))
			}
			note(rundir.EventSubmit, "job 400")
			n, err := run.ClaimAttempt()
			p.Must(err)
			p.Must(run.Append(rundir.Event{Time: time.Now(), Event: rundir.EventBegin, Attempt: n, Job: "400"}))
			v := rundir.Verdict{Attempt: n, JobID: "400", Cause: "crash", Exit: exit, Message: "rank 0 exited", Error: "KeyError",
				Class: "program", Advice: "add it", Time: time.Now()}
			p.Must(errors.Join(run.WriteVerdict(v), run.Append(v.Event()), run.SetJobID("500")))
			note(rundir.EventResume, "job 500")
			for _, state := range []string{"PENDING", "CANCELLED"} { // canceled while it waited
				p.QueueOf(run, "400 FAILED", "500 "+state)
				row, err := viewerOf(p).Status(t.Context(), run)
				if err != nil || row.State != state || row.Attempt != 1 || row.Ended != (state == "CANCELLED") || row.Finished() {
					t.Errorf("status of the job that is %s: %+v, %v", state, row, err)
				}
				if row.Cause != "" || row.Exit != nil || row.Message != "" || row.Error+row.Class+row.Advice != "" {
					t.Errorf("the job that is %s has the end of the one before: %+v", state, row)
				}
			}
			p.WithoutAccounting()
			p.QueueOf(run) // Slurm has forgotten both jobs
			row, err := viewerOf(p).Status(t.Context(), run)
			want := map[int]string{0: "UNKNOWN", 7: "FAILED"}[exit]
			if err != nil || row.State != want || !row.Ended || row.Finished() || (row.Exit == nil) != (exit == 0) {
				t.Errorf("status of the job that is forgotten: %+v, %v", row, err)
			}
		})
	}
}

// While a later attempt runs, the status says why the one before it ended.
func TestStatusOfALaterAttemptSaysWhyTheOneBeforeEnded(t *testing.T) {
	p, run := fakeslurm.New(t), fakeslurm.Run(t, "")
	p.Must(run.SetJobID("12"))
	begin := func() {
		n, err := run.ClaimAttempt()
		p.Must(err)
		p.Must(run.Append(rundir.Event{Time: time.Now(), Event: rundir.EventBegin, Attempt: n, Job: "12"}))
	}
	want := func(want string) {
		t.Helper()
		p.QueueOf(run, "12 RUNNING")
		if row, err := viewerOf(p).Status(t.Context(), run); err != nil || row.Before() != want {
			t.Errorf("%q, %v, want %q", row.Before(), err, want)
		}
	}
	begin()
	want("")
	v := rundir.Verdict{Attempt: 1, JobID: "12", Cause: "timeout", Exit: 143, Message: "the time limit came", Time: time.Now()}
	p.Must(errors.Join(run.WriteVerdict(v), run.Append(v.Event())))
	want("") // the attempt's own end is shown
	begin()
	want("attempt 1: timeout")
}

// If a job ended badly and could not write to its run directory, status and submit --wait say what may be wrong.
func TestSilentJobIsExplained(t *testing.T) {
	crashed := rundir.Verdict{Cause: "crash", Exit: 7, Message: "rank 0 exited with code 7"}
	for name, test := range map[string]struct {
		state, reason string
		verdict       *rundir.Verdict // of job 12, or of the job that the verdict names
		status, wait  string
	}{
		"not started": {"FAILED", "JobLaunchFailure", nil, "could not start the batch script",
			"job 12 ended as FAILED: Slurm could not start the batch script"},
		"could not write": {"FAILED", "None", nil, "check that the run directory exists on the job's nodes",
			"job 12 ended as FAILED: the job left no verdict"},
		"after an older job": {"FAILED", "NonZeroExitCode", &rundir.Verdict{JobID: "11", Cause: "crash", Exit: 7}, "left no verdict",
			"job 12 ended as FAILED: the job left no verdict"},
		"said":      {"FAILED", "NonZeroExitCode", &crashed, "", "job 12: rank 0 exited with code 7"},
		"cancelled": {"CANCELLED", "None", nil, "", "job 12 ended as CANCELLED: no agent left a verdict"},
		"runs":      {"RUNNING", "None", nil, "", "-"},
	} {
		p, run := fakeslurm.New(t), fakeslurm.Run(t, "")
		p.Must(run.SetJobID("12"))
		if test.verdict != nil {
			n, err := run.ClaimAttempt()
			p.Must(err)
			v := *test.verdict
			if v.Attempt = n; v.JobID == "" {
				v.JobID = "12"
			}
			p.Must(run.WriteVerdict(v))
		}
		p.QueueOf(run, "12 "+test.state+" "+test.reason)
		row, err := viewerOf(p).Status(t.Context(), run)
		if err != nil || row.State != test.state || (row.Next == "") != (test.status == "") || !strings.Contains(row.Next, test.status) {
			t.Errorf("%s: %+v, %v", name, row, err)
		}
		if !row.Ended {
			continue
		}
		if err := endOf("12", row); err == nil || !strings.Contains(err.Error(), test.wait) {
			t.Errorf("%s: --wait ends with %v", name, err)
		}
	}
}

// Status shows the speed while ranks run, the newest save at any time, and, for a job that runs, the end that its time limit sets.
func TestStatusShowsSpeedSaveAndEnd(t *testing.T) {
	saved := time.Date(2026, 11, 27, 8, 0, 0, 0, time.UTC)
	ends := time.Date(2026, 11, 27, 10, 0, 0, 0, time.Local)
	for state, test := range map[string]struct {
		end       string // as squeue prints it
		runs, has bool   // whether the job runs, and has an end
	}{
		"RUNNING":   {"2026-11-27T10:00:00", true, true},
		"SIGNALING": {"2026-11-27T10:00:00", true, true},
		"PENDING":   {"2026-11-27T10:00:00", false, false},
		"FAILED":    {"2026-11-27T10:00:00", false, false},
	} {
		p, run := fakeslurm.New(t), fakeslurm.Run(t, "")
		p.Must(run.SetJobID("12"))
		attempt, err := run.ClaimAttempt()
		p.Must(err)
		p.Must(os.WriteFile(run.MetricsPath(), fmt.Appendf(nil, `{"attempt":%d,"step":3,"steps":9,"samples_per_s":640}`+"\n", attempt),
			0o600))
		p.Must(os.MkdirAll(run.CheckpointsPath(), 0o700))
		file := filepath.Join(run.CheckpointsPath(), "last.pt")
		p.Must(os.WriteFile(file, nil, 0o600))
		p.Must(os.Chtimes(file, saved, saved))
		p.Says("squeue.out", strings.Join([]string{"12", "12", state, "None", test.end, "2:00:00", run.Spec().Name}, "\x1f")+"\n")
		row, err := viewerOf(p).Status(t.Context(), run)
		p.Must(err)
		if row.Saved == nil || !row.Saved.Equal(saved) {
			t.Errorf("%s: saved at %v, want %v", state, row.Saved, saved)
		}
		if speed := row.Speed; (speed != nil) != test.runs || speed != nil && *speed != 640 {
			t.Errorf("%s: the speed is %v", state, speed)
		}
		if end := row.Ends; (end != nil) != test.has || end != nil && !end.Equal(ends) {
			t.Errorf("%s: it ends at %v", state, end)
		}
	}
}

// Each element of an array has a row, in the order of the elements. Elements about which only Slurm knows have rows as well.
func TestArraysHaveARowForEachElement(t *testing.T) {
	w := newArrayWorld(t, "0-3")
	w.Submitted("12")
	w.Ran(1, "12", 0)
	w.Queue("12_0 RUNNING", "12_1 COMPLETED", "12_[2-3] PENDING")
	row, err := viewerOf(w.Slurm).Status(t.Context(), w.Run)
	w.Must(err)
	results, err := row.Results("")
	w.Must(err)
	var got []string
	for _, r := range results.Rows {
		got = append(got, fmt.Sprint(r.Index, " ", r.State))
	}
	if want := []string{"0 RUNNING", "1 COMPLETED", "2 PENDING", "3 PENDING"}; !slices.Equal(got, want) || len(results.Columns) > 0 {
		t.Errorf("%q, columns %q; want %q and none", got, results.Columns, want)
	}
}
