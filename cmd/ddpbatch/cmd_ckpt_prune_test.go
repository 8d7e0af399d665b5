package main

import (
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/rundir"
	"ddpbatch/internal/testkit/fakeslurm"
)

// Prune removes no checkpoints while the run's job is alive, even one that was never recorded, or while its newest attempt may be.
func TestPruneRefusesARunThatIsAlive(t *testing.T) {
	for name, test := range map[string]struct {
		crashed bool   // the attempt of job 500
		queue   string // "": Slurm has forgotten it
		resumed bool   // resumed as job 501
		says    string // "": prune may remove them
	}{
		"runs":                         {queue: "500 RUNNING", says: "job 500 is still RUNNING"},
		"left no verdict":              {says: "attempt 1 of 500 has left no verdict, so it may still run"},
		"has ended":                    {crashed: true},
		"waits":                        {crashed: true, resumed: true, queue: "501 PENDING", says: "job 501 is still PENDING"},
		"was cancelled while it waits": {crashed: true, resumed: true, queue: "501 CANCELLED"},
	} {
		t.Run(name, func(t *testing.T) {
			p, run := newPretendSlurm(t), attemptRun(t, "")
			p.WithoutAccounting()
			note := func(event rundir.Event) {
				t.Helper()
				event.Time = time.Now()
				p.Must(run.Append(event))
			}
			fakeslurm.CutShort(t, run)
			n, err := run.ClaimAttempt()
			p.Must(err)
			note(rundir.Event{Event: rundir.EventBegin, Attempt: n, Job: "500"})
			if test.crashed {
				p.Must(run.WriteVerdict(rundir.Verdict{Attempt: n, JobID: "500", Cause: "crash", Exit: 7, Message: "rank 0 crashed"}))
			}
			if test.resumed {
				note(rundir.Event{Event: rundir.EventResume, Detail: "job 501"})
				p.Must(run.SetJobID("501"))
			}
			if test.queue != "" {
				p.QueueOf(run, test.queue)
			}
			e, _, _ := p.env(0, 0)
			err = refuseAlive(t.Context(), e, run)
			if (err == nil) != (test.says == "") || err != nil && !strings.Contains(err.Error(), test.says) {
				t.Errorf("%v; want %q", err, test.says)
			}
		})
	}
}
