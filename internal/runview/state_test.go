package runview

import (
	"testing"

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
	if got := stateOf(75, false, recovery.Saved); got != "FAILED" { // a rank was killed at its save
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
		"of the job before it": {RunStatus{Job: "13", VerdictJob: "12", Message: failed, Error: "KeyError: 'lr'"}, ""},
	} {
		if got := test.row.Ending(); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
