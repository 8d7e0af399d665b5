package runview

import (
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"ddpbatch/internal/rundir"
	"ddpbatch/internal/testkit/fakeslurm"
	"ddpbatch/slurm"
)

// viewerOf returns a Viewer with a simulated Slurm.
func viewerOf(p *fakeslurm.Slurm) *Viewer {
	return &Viewer{
		Slurm: &slurm.Client{Environ: p.Environ(0, 0)}, Now: time.Now,
		From: "/", Out: io.Discard, Err: io.Discard, Log: slog.New(slog.DiscardHandler),
	}
}

// arrayWorld is an array whose elements and whose Slurm the test simulates.
type arrayWorld struct {
	*fakeslurm.Array
	t *testing.T
}

func newArrayWorld(t *testing.T, array string) *arrayWorld {
	return &arrayWorld{fakeslurm.NewArray(t, array), t}
}

func (w *arrayWorld) status(state string, exit int, message string) RunStatus {
	w.t.Helper()
	row, err := viewerOf(w.Slurm).Status(w.t.Context(), w.Run)
	w.Must(err)
	got := -1
	if row.Exit != nil {
		got = *row.Exit
	}
	if row.State != state || got != exit || row.Message != message {
		w.t.Errorf("status is %s, exit code %d, %q; want %s, %d, %q", row.State, got, row.Message, state, exit, message)
	}
	return row
}

// ends checks how --wait for a job id ends.
func (w *arrayWorld) ends(row RunStatus, id string, code int, message string) {
	w.t.Helper()
	row = row.ofJob(id)
	err := endOf(id, row)
	if !row.Ended || codeOf(err) != code || err != nil && err.Error() != message {
		w.t.Errorf("the wait for job %s ends (%v) with %d, %v; want %d, %s", id, row.Ended, codeOf(err), err, code, message)
	}
}

// The state of an array comes from its elements: from Slurm's state of each, or else from the files that it left.
func TestStatusOfAnArrayIsItsElements(t *testing.T) {
	w := newArrayWorld(t, "0-3%2")
	w.Submitted("12")
	w.Queue("12_[0-3%2] PENDING")
	w.status("PENDING", -1, "0 of 4 elements are done")
	w.Ran(0, "12", 0)
	one := w.Ran(1, "12", 3)
	w.Queue("12_[2-3%2] PENDING", "12_0 COMPLETED", "12_1 RUNNING") // element 1 has left its verdict, and is about to end
	if row := w.status("RUNNING", -1, "1 of 4 elements are done"); row.Ended || row.Attempt != 1 {
		t.Errorf("status is %+v", row)
	}
	w.Ran(2, "12", 7)
	w.Queue("12_2 FAILED", "12_0 COMPLETED", "12 CANCELLED") // the last element had not begun
	row := w.status("FAILED", 7, "1 of 4 elements are done, 3 did not end well; element 2: code 7")
	w.ends(row, "12", 7, "job 12: 3 of 4 elements did not end well\n  job 12_1: code 3\n  job 12_2: code 7\n"+
		"  job 12_3 ended as CANCELLED: canceled before an attempt began")
	w.Queue() // Slurm has forgotten the array
	row = w.status("FAILED", 7, "1 of 4 elements are done, 2 did not end well; element 2: code 7")

	// one element alone
	w.Submitted("13", one)
	w.Queue("13_1 PENDING")
	w.status("PENDING", -1, "1 of 4 elements are done; element 2: code 7")
	w.Ran(1, "13", 0)
	w.status("PENDING", -1, "1 of 4 elements are done; element 2: code 7")
	w.Queue("13_1 COMPLETED")
	row = w.status("FAILED", 7, "2 of 4 elements are done; element 2: code 7")
	w.ends(row, "13", 0, "")
	w.ends(row, "12", 7, "job 12: 2 of 4 elements did not end well\n  job 12_2: code 7\n  job 12_3 ended as UNKNOWN: no agent left a "+
		"verdict; see ddpbatch logs 12")

	// all elements once more, two of which wait
	w.Submitted("14")
	w.Ran(0, "14", 0)
	w.Ran(2, "14", 0)
	w.Queue("14_0 COMPLETED", "14_2 COMPLETED", "14_[1,3] PENDING")
	w.status("PENDING", -1, "2 of 4 elements are done")
	w.Ran(1, "14", 0)
	w.Ran(3, "14", 0)
	w.Queue()
	row = w.status("COMPLETED", 0, "all 4 elements are done")
	w.ends(row, "14", 0, "")
}

// The line above the table says how an element ended in the words of the element's row.
func TestStatusOfAnArraySaysWhatTheRowSays(t *testing.T) {
	for want, v := range map[string]rundir.Verdict{
		"canceled; the ranks had saved": {Cause: "cancelled", Exit: 75, Saved: true,
			Message: "the agent on n1 was told to stop by SIGTERM"},
		"rank 0 on n1 exited with code 1: KeyError: 'lr'": {Cause: "crash", Exit: 1, Error: "KeyError: 'lr'",
			Message: "rank 0 on n1 exited with code 1" + lastWords + "runs/x/n1.0.err"},
	} {
		w := newArrayWorld(t, "0,1")
		w.Submitted("12")
		element, err := w.Run.Task(0)
		w.Must(err)
		w.Must(element.SetJobID("12_0"))
		v.Attempt, err = element.ClaimAttempt()
		w.Must(err)
		w.Must(element.Append(rundir.Event{Time: time.Now(), Event: rundir.EventBegin, Attempt: v.Attempt, Job: "12_0"}))
		v.JobID = "12_0"
		w.Must(element.WriteVerdict(v))
		w.Ran(1, "12", 0)
		w.Queue()
		row, err := viewerOf(w.Slurm).Status(t.Context(), w.Run)
		w.Must(err)
		if row.Message != "1 of 2 elements are done; element 0: "+want || row.elements[0].Why() != want {
			t.Errorf("%q, and the row %q; want %q", row.Message, row.elements[0].Why(), want)
		}
	}
}

// The ledger records a person's cancel of a waiting element, because Slurm forgets such an element at once.
func TestStatusKnowsACancelledElement(t *testing.T) {
	w := newArrayWorld(t, "1,2")
	w.Submitted("12")
	w.Ran(1, "12", 0)
	w.Must(w.Run.Append(rundir.Event{Time: time.Now(), Event: rundir.EventCancel, Job: "12_2"}))
	w.Queue("12_1 COMPLETED")
	row := w.status("CANCELLED", 1, "1 of 2 elements are done; element 2 ended as CANCELLED: it was canceled before it began")
	w.ends(row, "12", 1, "job 12: 1 of 2 elements did not end well\n  job 12_2 ended as CANCELLED: it was canceled before it began")
	if two := row.elements[1]; two.Why() != canceledWaiting || two.Next != canceledWaiting {
		t.Errorf("the element's REASON is %q, and its next %q", two.Why(), two.Next)
	}
}

// An element that was canceled while it waited has the same REASON however that is known.
func TestElementCanceledAloneHasAReason(t *testing.T) {
	w := newArrayWorld(t, "1,2")
	w.Submitted("12")
	w.Ran(1, "12", 0)
	two := w.Ran(2, "12", 3)
	w.Submitted("13", two) // once more, after an end of its own
	for _, test := range []struct{ queue, log, want string }{
		{"13_2 CANCELLED Priority", "", canceledWaiting + " (Priority)"},
		{"13_2 CANCELLED None", "", canceledBefore},
		{"12_1 COMPLETED", "13_2", canceledBefore}, // its batch script had begun
		{"12_1 COMPLETED", "", canceledWaiting},
	} {
		if test.log != "" {
			w.Must(two.Append(rundir.Event{Time: time.Now(), Event: rundir.EventCancel, Job: test.log}))
			w.Must(os.WriteFile(w.Run.SlurmLogPath(test.log), nil, 0o600))
		} else {
			os.Remove(w.Run.SlurmLogPath("13_2"))
		}
		w.Queue(test.queue)
		row, err := viewerOf(w.Slurm).Status(t.Context(), w.Run)
		w.Must(err)
		element := row.elements[1]
		if element.State != "CANCELLED" || element.Why() != test.want || element.Message != "" {
			t.Errorf("with %s the element is %s, %q (%q); want %q", test.queue, element.State, element.Why(), element.Message, test.want)
		}
	}
}

// Resuming one element alone undoes the cancel of that element only.
func TestResumeOfOneLeavesSiblingsCancelled(t *testing.T) {
	w := newArrayWorld(t, "1,2")
	w.Submitted("12")
	one := w.Ran(1, "12", 3)
	w.Must(w.Run.Append(rundir.Event{Time: time.Now(), Event: rundir.EventCancel, Job: "12"}))
	w.Submitted("13", one)
	w.Queue("13_1 PENDING")
	w.status("PENDING", -1, "0 of 2 elements are done; element 2 ended as CANCELLED: it was canceled before it began")
	w.Submitted("14") // all elements
	w.Queue("14_1 RUNNING", "14_2 PENDING")
	w.status("RUNNING", -1, "0 of 2 elements are done")
}

// For an array that is too large for this program to list its elements, Slurm says which elements have not begun.
func TestStatusOfALargeArrayIsSlurms(t *testing.T) {
	w := newArrayWorld(t, "0-5000")
	w.Submitted("12")
	one := w.Ran(0, "12", 7)
	w.Submitted("13", one)
	w.Ran(0, "13", 0)
	w.Queue("12_0 FAILED", "12_[1-5000] PENDING", "13_0 COMPLETED")
	if row := w.status("PENDING", -1, "1 of its elements are done"); row.Ended {
		t.Errorf("status is %+v", row)
	}
}

// If scancel removes an element from the queue before it begins, Slurm's answers no longer have the element (seen with 22.05), but still
// have the rest of its array. An element that began has left files.
func TestStatusKnowsADroppedElement(t *testing.T) {
	const dropped = "element 2 ended as CANCELLED: it was canceled before it began"
	w := newArrayWorld(t, "0-2")
	w.Submitted("12")
	w.Queue("12_0 RUNNING", "12_[1] PENDING")
	w.status("RUNNING", -1, "0 of 3 elements are done; "+dropped)
	w.Ran(0, "12", 0)
	w.Ran(1, "12", 0)
	w.Queue("12_0 COMPLETED", "12_1 COMPLETED")
	row := w.status("CANCELLED", 1, "2 of 3 elements are done; "+dropped)
	w.ends(row, "12", 1, "job 12: 1 of 3 elements did not end well\n  job 12_2 ended as CANCELLED: it was canceled before it began")

	// the same, after the element had an end of its own
	w.Ran(2, "12", 3)
	w.Submitted("13")
	w.Queue("13_[0-2%1] PENDING")
	w.status("PENDING", -1, "0 of 3 elements are done")
	w.Ran(0, "13", 0)
	w.Ran(1, "13", 0)
	w.Queue("13_0 COMPLETED", "13_1 COMPLETED")
	w.status("CANCELLED", 1, "2 of 3 elements are done; "+dropped)

	// its batch script failed at once, and Slurm has forgotten it
	const failed = "2 of 3 elements are done; element 2 ended as FAILED: no agent left a verdict; see ddpbatch logs 13_2"
	w.Must(os.WriteFile(w.Run.SlurmLogPath("13_2"), []byte("no such module\n"), 0o600))
	w.status("FAILED", 1, failed)
	w.Must(os.Remove(w.Run.SlurmLogPath("13_2")))
	w.Queue() // Slurm has forgotten the array
	w.status("FAILED", 1, failed)
}

// If a resume gave elements more to do and Slurm has forgotten their job, the elements have not done it.
func TestForgottenElementsThatWaitAreNotDone(t *testing.T) {
	w := newArrayWorld(t, "0-1")
	w.Submitted("12")
	w.Ran(0, "12", 0)
	w.Ran(1, "12", 0)
	w.Submitted("13")
	w.Queue("13_[0-1] PENDING")
	w.status("PENDING", -1, "0 of 2 elements are done")
	w.Ran(0, "13", 0)
	w.Queue()
	const forgotten = "1 of 2 elements are done; element 1 ended as UNKNOWN: job 13_1 has left nothing, and Slurm does " +
		"not know it: ddpbatch resume "
	w.status("UNKNOWN", 1, forgotten+w.Run.Path())
}

// If some elements of an array were resumed, the states of the others stay.
func TestStatusKnowsWhatWasResumed(t *testing.T) {
	w := newArrayWorld(t, "0-4")
	w.Submitted("12")
	for index, code := range []int{0, 3, 0, 4} {
		element := w.Ran(index, "12", code)
		w.Must(element.Append(rundir.Event{Time: time.Now(), Event: rundir.EventGiveUp, Attempt: 1, Detail: "it has failed"}))
	}
	w.Must(w.Run.Append(rundir.Event{Time: time.Now(), Event: rundir.EventCancel, Job: "12_4"}))
	w.Queue("12_0 COMPLETED", "12_1 FAILED", "12_2 COMPLETED", "12_3 FAILED")
	row := w.status("FAILED", 4, "2 of 5 elements are done, 3 did not end well; element 3: code 4")
	if got := row.FinishedElements(); !slices.Equal(got, []int{0, 2}) {
		t.Errorf("elements %v are finished", got)
	}
	some := rundir.Event{Time: time.Now(), Event: rundir.EventResume, Detail: "job 13", Spans: rundir.SpansOf([]int{1, 3, 4})}
	w.Must(w.Run.SetJobID("13"))
	w.Must(w.Run.Append(some))
	w.Queue("12_0 COMPLETED", "12_2 COMPLETED", "13_[1,3-4] PENDING")
	row = w.status("PENDING", -1, "2 of 5 elements are done")
	if one := row.elements[1]; one.Job != "13_1" || one.Next != "" || one.Exit != nil || one.Message != "" {
		t.Errorf("an element that waits is %+v", one)
	}
	if _, jobs, err := viewerOf(w.Slurm).FindJobs("/", w.Run.Path()); err != nil || !slices.Equal(jobs, []string{"12", "13"}) {
		t.Errorf("its jobs are %q, %v", jobs, err)
	}
	w.Ran(1, "13", 0)
	w.Ran(3, "13", 0)
	w.Ran(4, "13", 5)
	w.Queue("13_1 COMPLETED", "13_3 COMPLETED", "13_4 FAILED")
	row = w.status("FAILED", 5, "4 of 5 elements are done; element 4: code 5")
	w.ends(row, "13", 5, "job 13: 1 of 3 elements did not end well\n  job 13_4: code 5")
	w.ends(row, "12", 5, "job 12: 1 of 5 elements did not end well\n  job 13_4: code 5")

	// one of them alone; then a resume of two is cut short before its result is recorded
	four, err := w.Run.Task(4)
	w.Must(err)
	w.Submitted("14", four)
	w.Ran(4, "14", 0)
	w.Queue()
	w.status("COMPLETED", 0, "all 5 elements are done")
	w.Must(w.Run.Append(rundir.Event{
		Time: time.Now(), Event: rundir.EventSubmitting, Detail: rundir.EventResume, Spans: rundir.SpansOf([]int{0, 1}),
	}))
	w.Queue("15_[0-1] PENDING")
	w.status("PENDING", -1, "3 of 5 elements are done")
}

// TestStatusOfASweepInPieces: a sweep of several arrays is shown as one, and each of its elements has Slurm's index in its own array. The
// command that submitted it was killed before the last array.
func TestStatusOfASweepInPieces(t *testing.T) {
	w := newArrayWorld(t, "0-9")
	spec := w.Run.Spec()
	spec.ArraySize = 4
	w.Must(w.Run.WriteSpec(spec))
	piece := func(event, job string, indices ...int) {
		w.Must(w.Run.Append(rundir.Event{Time: time.Now(), Event: event, Detail: "job " + job, Spans: rundir.SpansOf(indices)}))
	}
	w.Must(w.Run.SetJobID("12"))
	piece(rundir.EventSubmit, "12", 0, 1, 2, 3)
	piece(rundir.EventLink, "13", 4, 5, 6, 7)
	w.Must(w.Run.PointJobID("13"))
	for index := range 8 {
		if index != 6 {
			w.Ran(index, []string{"12", "13"}[index/4], 0)
		}
	}
	w.Queue("12_0 COMPLETED", "12_1 COMPLETED", "12_2 COMPLETED", "12_3 COMPLETED",
		"13_0 COMPLETED", "13_1 COMPLETED", "13_2 PENDING", "13_3 COMPLETED")
	row := w.status("PENDING", -1, "7 of 10 elements are done")
	if six, nine := row.elements[6], row.elements[9]; six.Job != "13_2" || six.State != "PENDING" ||
		nine.Job != "" || nine.State != "UNKNOWN" {
		t.Errorf("the element that waits is %+v, and that of no array %+v", six, nine)
	}
	w.Ran(6, "13", 5)
	w.Queue("13_2 FAILED")
	row = w.status("FAILED", 5, "7 of 10 elements are done; element 6: code 5")
	for _, job := range []string{"12", "13"} {
		if _, jobs, err := viewerOf(w.Slurm).FindJobs(filepath.Dir(w.Run.Path()), job); err != nil ||
			!slices.Equal(jobs, []string{"12", "13"}) {
			t.Errorf("job %s means %q, %v", job, jobs, err)
		}
		if got := row.ofJob(job); len(got.elements) != 10 {
			t.Errorf("job %s has %d elements", job, len(got.elements))
		}
	}
	found, err := rundir.Find(filepath.Dir(w.Run.Path()), "13_2")
	if index, ok := found.Index(); err != nil || !ok || index != 6 {
		t.Errorf("13_2 is element %d, %v", index, err)
	}
	var names []string
	for _, name := range rundir.Names(filepath.Dir(w.Run.Path()), "13_") {
		names = append(names, name.Text)
	}
	if want := []string{"13_0", "13_1", "13_2", "13_3"}; !slices.Equal(names, want) {
		t.Errorf("a shell completes 13_ as %q, want %q", names, want)
	}
}
