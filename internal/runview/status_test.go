package runview

import (
	"ddpbatch/internal/rundir"
	"errors"
	"testing"
)

// What verdicts of earlier versions called signal and agent-lost has one name now, that of requeue.on.
func TestStatusOfEarlierCauses(t *testing.T) {
	for then, now := range map[string]string{"signal": "crash", "agent-lost": "node", "crash": "crash"} {
		w := newLogsWorld(t)
		run := w.run
		n, err := run.ClaimAttempt()
		if err := errors.Join(err, run.WriteVerdict(rundir.Verdict{Attempt: n, Cause: then, Exit: 137, Signal: 9})); err != nil {
			t.Fatal(err)
		}
		var row RunStatus
		if err := w.logs(1, 0).v.readRun(&row, run, ""); err != nil || row.Cause != now {
			t.Errorf("%s: cause %q, %v; want %s", then, row.Cause, err, now)
		}
	}
}
