package runview

import (
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/rundir"
	"ddpbatch/internal/testkit/fakeslurm"
	"ddpbatch/mpi/launch/recovery"
)

// TestStateOfASavedRunIsNotFailed: a run that stopped in time and saved has not failed.
func TestStateOfASavedRunIsNotFailed(t *testing.T) {
	for _, tt := range []struct {
		exit  int
		cause string
		want  string
	}{
		{0, "done", "COMPLETED"}, {75, "stopped", "SAVED"}, {75, "timeout", "TIMEOUT"}, {75, "preempt", "PREEMPTED"},
		{130, "cancelled", "CANCELLED"},
		{75, "cancelled", "CANCELLED"}, {1, "crash", "FAILED"}, {137, "crash", "FAILED"}, {1, "node", "NODE_FAIL"},
		{124, "timeout", "FAILED"}, {137, "oom", "OUT_OF_MEMORY"},
		{1, "unknown", "FAILED"},
	} {
		if got := stateOf(tt.exit, tt.exit == 75, recovery.Cause(tt.cause)); got != tt.want {
			t.Errorf("exit %d, %s: %s, want %s", tt.exit, tt.cause, got, tt.want)
		}
	}
	if got := stateOf(75, false, recovery.Saved); got != "FAILED" { // a rank was killed during its save
		t.Errorf("asks to be started again, and has not saved: %s", got)
	}
}

func TestEndingIsTheFirstSentenceAndTheError(t *testing.T) {
	const failed = "rank 3 on n2 exited with code 1"
	for name, test := range map[string]struct {
		row  RunStatus
		want string
	}{
		"it has not ended": {RunStatus{Job: "12"}, ""},
		"done":             {RunStatus{Job: "12", VerdictJob: "12", Message: "all 2 ranks are done"}, "all 2 ranks are done"},
		"an exception": {RunStatus{Job: "12", VerdictJob: "12", Message: failed + "; its last words are in runs/x/n2.3.err",
			Error: "KeyError: 'lr'"},
			failed + ": KeyError: 'lr'"},
		"a known cause": {RunStatus{Job: "12", VerdictJob: "12", Message: failed, Error: "OSError: full", Advice: "make room"},
			failed + ": OSError: full (hint: make room)"},
		"a known cause that nobody put into words": {RunStatus{Job: "12", VerdictJob: "12", Message: failed, Advice: "make room"},
			failed + " (hint: make room)"},
		"a known cause that ends the run": {RunStatus{Job: "12", VerdictJob: "12", Message: failed, Error: "OSError: full",
			Advice: "make room", Next: "not started again: no restart mends that: make room"}, failed + ": OSError: full"},
		"no words":   {RunStatus{Job: "12", VerdictJob: "12", Message: failed}, failed},
		"an element": {RunStatus{Job: "12_3", VerdictJob: "12_3", Message: failed}, failed},
		"an array": {RunStatus{Job: "12", Message: "1 of 2 elements are done; element 1: " + failed},
			"1 of 2 elements are done; element 1: " + failed},
		"canceled, and saved": {RunStatus{Job: "12", VerdictJob: "12", Message: "the agent on n2 was told to stop by SIGTERM", saved: true,
			Cause: "cancelled"}, "canceled; the ranks had saved"},
		"of the job before it": {RunStatus{Job: "13", VerdictJob: "12", Message: failed, Error: "KeyError: 'lr'"}, ""},
	} {
		if got := test.row.Ending(); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestAttemptBeforeACanceledResumeKeepsItsError(t *testing.T) {
	row := RunStatus{Job: "13", Attempt: 1, waits: true, Message: "rank 1 on n2 exited with code 1" + lastWords + "runs/x/n2.1.err",
		Error: "ModuleNotFoundError: No module named 'torch'", Advice: "install it"}
	const want = canceledBefore + "; attempt 1, before it: rank 1 on n2 exited with code 1: ModuleNotFoundError: No module named 'torch'"
	if got := row.canceled(canceledBefore); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestCanceledWhileItWaitedIsNotUnknown: REASON says that a job was canceled while it waited, whether Slurm still knows the job or not.
// Slurm keeps the reason for which the job waited.
func TestCanceledWhileItWaitedIsNotUnknown(t *testing.T) {
	const waited, before = "canceled while it waited", "canceled before an attempt began"
	const last = "; attempt 1, before it: all 2 ranks are done"
	for name, test := range map[string]struct {
		resumed, requeued, noted bool   // resumed after job 12, which was done; job 12 waits again; canceled with ddpbatch cancel
		queue                    string // Slurm's answer; empty: Slurm has forgotten the job
		state, next              string
	}{
		"known":                   {noted: true, queue: "CANCELLED Priority", state: "CANCELLED", next: waited + " (Priority)"},
		"known, without a reason": {noted: true, queue: "CANCELLED", state: "CANCELLED", next: before},
		"known, by scancel":       {queue: "CANCELLED Priority", state: "CANCELLED", next: waited + " (Priority)"},
		"waits":                   {queue: "PENDING Priority", state: "PENDING"},
		"forgotten":               {noted: true, state: "CANCELLED", next: before},
		"forgotten, by scancel": {state: "UNKNOWN",
			next: "Slurm no longer knows job 12, and it left no result: canceled before it began, or lost"},
		"resumed, known": {resumed: true, noted: true, queue: "CANCELLED Resources", state: "CANCELLED",
			next: waited + " (Resources)" + last},
		"resumed, forgotten": {resumed: true, noted: true, state: "CANCELLED", next: before + last},
		"resumed, forgotten, by scancel": {resumed: true, state: "UNKNOWN",
			next: "job 13 has left nothing, and Slurm does not know it: ddpbatch resume RUN" + last},
		"requeued, known": {requeued: true, noted: true, queue: "CANCELLED BeginTime", state: "CANCELLED",
			next: waited + " (BeginTime)"},
		"requeued, known, without a reason": {requeued: true, noted: true, queue: "CANCELLED", state: "CANCELLED",
			next: "canceled before it began again"},
		"requeued, forgotten": {requeued: true, noted: true, state: "CANCELLED", next: "canceled before it began again"},
	} {
		t.Run(name, func(t *testing.T) {
			p, run := fakeslurm.New(t), fakeslurm.Run(t, "")
			p.WithoutAccounting()
			note := func(event rundir.Event) {
				t.Helper()
				event.Time = time.Now()
				p.Must(run.Append(event))
			}
			job := "12"
			note(rundir.Event{Event: rundir.EventSubmit, Detail: "job 12"})
			if test.resumed || test.requeued {
				n, err := run.ClaimAttempt()
				p.Must(err)
				note(rundir.Event{Event: rundir.EventBegin, Attempt: n, Job: "12"})
				v := rundir.Verdict{Attempt: n, JobID: "12", Cause: "done", Message: "all 2 ranks are done", Time: time.Now()}
				if test.requeued {
					v.Cause, v.Exit, v.Message = "timeout", 75, "all ranks saved"
				}
				p.Must(run.WriteVerdict(v))
				note(v.Event())
			}
			if test.requeued {
				note(rundir.Event{Event: rundir.EventRequeue, Attempt: 1, Detail: "the time limit"})
			}
			if test.resumed {
				job = "13"
				note(rundir.Event{Event: rundir.EventResume, Detail: "job 13"})
			}
			p.Must(run.SetJobID(job))
			if test.noted {
				note(rundir.Event{Event: rundir.EventCancel, Job: job, Detail: "job " + job})
			}
			p.QueueOf(run)
			if test.queue != "" {
				p.QueueOf(run, job+" "+test.queue)
			}
			row, err := viewerOf(p).Status(t.Context(), run)
			next := strings.ReplaceAll(row.Next, run.Path(), "RUN")
			if err != nil || row.State != test.state || next != test.next || row.Ended != (test.state != "PENDING") {
				t.Errorf("%s: %q, want %s: %q (%+v, %v)", row.State, next, test.state, test.next, row, err)
			}
			if row.Ended && row.Reason != "" {
				t.Errorf("it has ended, and waits for %s", row.Reason)
			}
		})
	}
}
