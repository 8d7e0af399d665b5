package attempt

import (
	"strings"
	"testing"

	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/testkit/fakeslurm"
	"ddpbatch/mpi/launch/recovery"
)

// TestDecideFollowsTheTable checks each row of the table of decisions.
func TestDecideFollowsTheTable(t *testing.T) {
	const onNodes = `on = ["node"]`
	cancelled := Facts{Evidence: recovery.Evidence{Asked: true, State: "COMPLETING"}}
	crash := rundir.Verdict{Attempt: 1, Cause: "crash", Exit: 7}
	for name, test := range map[string]struct {
		requeue string
		known   known
		action  recovery.Action
		why     string
	}{
		"done":                       {onNodes, known{verdict: doneVerdict}, recovery.Finish, "the run is done"},
		"not named":                  {onNodes, known{verdict: crash}, recovery.GiveUp, ""},
		"not named, and begun again": {onNodes, known{verdict: crash, begun: true}, recovery.Requeue, ""},
		"no budget, and begun again": {onNodes + "\nmax.node = 0", known{verdict: fakeslurm.Lost, begun: true}, recovery.GiveUp,
			"requeue.max.node = 0"},
		"named":                {onNodes, known{verdict: fakeslurm.Lost}, recovery.Requeue, ""},
		"named, and cancelled": {onNodes, known{verdict: fakeslurm.Lost, facts: cancelled}, recovery.GiveUp, JobCancelled},
		"named, and forbidden by who simulates": {onNodes, known{verdict: fakeslurm.Lost, facts: Facts{Forbids: "no"}},
			recovery.GiveUp, "no"},
		"not named, and cancelled": {onNodes, known{verdict: crash, facts: cancelled}, recovery.GiveUp, "crash"},
	} {
		job, err := jobfile.OfRun(fakeslurm.Run(t, test.requeue))
		if err != nil {
			t.Fatal(err)
		}
		test.known.policy = job.Policy()
		if d := test.known.decide(); d.Action != test.action || !strings.Contains(d.Why, test.why) {
			t.Errorf("%s: %+v; want %v, %q", name, d, test.action, test.why)
		}
	}
}
