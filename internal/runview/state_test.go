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
		{0, "done", "COMPLETED"}, {75, "stopped", "SAVED"}, {75, "timeout", "TIMEOUT"}, {75, "preempt", "PREEMPTED"}, {130, "cancelled", "CANCELLED"},
		{75, "cancelled", "CANCELLED"}, {1, "crash", "FAILED"}, {137, "signal", "FAILED"}, {1, "agent-lost", "NODE_FAIL"}, {124, "timeout", "FAILED"}, {137, "oom", "OUT_OF_MEMORY"},
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
