package attempt

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"os"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"ddpbatch/internal/rundir"
	"ddpbatch/internal/testkit/fakeslurm"
)

// The batch script ends srun some time after the run's last verdict, and not before. It sends TERM, and KILL if TERM does nothing.
func TestWatchEndsSrun(t *testing.T) {
	type at struct {
		after time.Duration
		sig   syscall.Signal
	}
	verdict := rundir.Verdict{Attempt: 1, Cause: "node", Exit: 1}
	restart, again := verdict, rundir.Verdict{Attempt: 2, Cause: "done"}
	restart.Restart = true
	begin := func(attempt int, job string) rundir.Event {
		return rundir.Event{Event: rundir.EventBegin, Attempt: attempt, Job: job}
	}
	for name, tc := range map[string]struct {
		verdicts []rundir.Verdict // in files
		events   []rundir.Event   // in the ledger, after the first attempt's beginning
		term     bool             // Slurm ends the job, 2 s after the start
		ends     syscall.Signal   // the signal that ends srun; 0: srun ends by itself after three minutes
		want     []at
		// when agent 0 records that the run goes on, after an agent that had lost agent 0 wrote the last verdict; 0: agent 0 does not
		// record it
		goesOn time.Duration
		leave  time.Duration // 0: a minute
	}{
		"nothing was said": {nil, nil, false, 0, nil, 0, 0},
		"a first word":     {[]rundir.Verdict{verdict}, nil, false, 0, nil, 0, 0},
		"the last word": {[]rundir.Verdict{verdict}, []rundir.Event{verdict.Event()}, false, syscall.SIGTERM,
			[]at{{60 * time.Second, syscall.SIGTERM}}, 0, 0},
		"TERM does nothing": {[]rundir.Verdict{verdict}, []rundir.Event{verdict.Event()}, false, syscall.SIGKILL,
			[]at{{60 * time.Second, syscall.SIGTERM}, {75 * time.Second, syscall.SIGKILL}}, 0, 0},
		"Slurm ends the job": {[]rundir.Verdict{verdict}, []rundir.Event{verdict.Event()}, true, syscall.SIGTERM,
			[]at{{3 * time.Second, syscall.SIGTERM}}, 0, 0},
		"a restart":                {[]rundir.Verdict{restart}, []rundir.Event{restart.Event()}, false, 0, nil, 0, 0},
		"a restart that has begun": {[]rundir.Verdict{restart}, []rundir.Event{restart.Event(), begin(2, "12")}, false, 0, nil, 0, 0},
		"a restart that is over": {[]rundir.Verdict{restart, again}, []rundir.Event{restart.Event(), begin(2, "12"), again.Event()},
			false, syscall.SIGTERM, []at{{60 * time.Second, syscall.SIGTERM}}, 0, 0},
		"a restart after it": {[]rundir.Verdict{verdict}, []rundir.Event{verdict.Event()}, false, 0, nil, 8 * time.Second, 0},
		"a restart just before": {[]rundir.Verdict{verdict}, []rundir.Event{verdict.Event()}, false, 0, nil,
			61 * time.Second, 62 * time.Second},
		"another job's attempt": {[]rundir.Verdict{verdict}, []rundir.Event{verdict.Event(), begin(2, "13")}, false, 0, nil, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			run := fakeslurm.Run(t, "")
			for range 1 + len(tc.events)/2 {
				if _, err := run.ClaimAttempt(); err != nil {
					t.Fatal(err)
				}
			}
			for _, event := range append([]rundir.Event{begin(1, "12")}, tc.events...) {
				if err := run.Append(event); err != nil {
					t.Fatal(err)
				}
			}
			for _, v := range tc.verdicts {
				if err := run.WriteVerdict(v); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				var got []at
				gone := false
				e := &script{Err: &bytes.Buffer{}, Now: time.Now, Environ: []string{"SLURM_JOB_ID=12"}}
				w := &stepWatch{
					a: &Attempt{Env: e.env(), Run: run, Number: 1, JobID: "12"}, leave: cmp.Or(tc.leave, time.Minute),
					srun: func(sig syscall.Signal) error {
						if gone || tc.ends == 0 && time.Since(start) >= 3*time.Minute {
							return os.ErrProcessDone
						}
						if sig != 0 && !slices.ContainsFunc(got, func(a at) bool { return a.sig == sig }) {
							got = append(got, at{time.Since(start), sig})
						}
						gone = sig != 0 && sig == tc.ends
						return nil
					},
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tc.term {
					defer time.AfterFunc(2*time.Second, cancel).Stop()
				}
				if tc.goesOn > 0 {
					defer time.AfterFunc(tc.goesOn, func() {
						_, err := run.ClaimAttempt()
						if err := errors.Join(err, run.WriteVerdict(restart), run.Append(restart.Event()),
							run.Append(begin(2, "12"))); err != nil {
							t.Error(err)
						}
					}).Stop()
				}
				if err := w.watch(ctx); err != nil || time.Since(start) > time.Hour {
					t.Errorf("ended with %v, after %v", err, time.Since(start))
				}
				if !slices.Equal(got, tc.want) {
					t.Errorf("srun got %v, want %v", got, tc.want)
				}
			})
		})
	}
}

// An agent that is cut off writes its last verdict some seconds after the others have lost it. Agent 0 may replace that verdict only after
// its own workers, and then those of the other agents, have had their grace.
func TestWatchWaitsForAgentZero(t *testing.T) {
	run := fakeslurm.Run(t, "") // launch.grace is one minute
	e := &script{Environ: []string{"SLURM_JOB_ID=12", "DDPBATCH_ATTEMPT=1"}}
	w, err := newStepWatch(e.env(), run, os.Getpid())
	if err != nil || w.leave < 145*time.Second || w.leave > 5*time.Minute {
		t.Errorf("waits for %v, %v", w.leave, err)
	}
}
