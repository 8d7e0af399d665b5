package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"ddpbatch/internal/rundir"
	"ddpbatch/internal/testkit"
)

// srun is ended some time after the run's last word, and not before: by TERM, and by KILL where that does nothing.
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
		verdicts []rundir.Verdict // on disk
		events   []rundir.Event   // in the ledger, after the first attempt's beginning
		term     bool             // Slurm ends the job, 2 s after the start
		ends     syscall.Signal   // what srun ends by; 0: by itself, after three minutes
		want     []at
		goesOn   time.Duration // when agent 0 says that the run goes on, after an agent that had lost it has said the last word; 0: it does not
		leave    time.Duration // 0: a minute
	}{
		"nothing was said":         {nil, nil, false, 0, nil, 0, 0},
		"a first word":             {[]rundir.Verdict{verdict}, nil, false, 0, nil, 0, 0},
		"the last word":            {[]rundir.Verdict{verdict}, []rundir.Event{verdict.Event()}, false, syscall.SIGTERM, []at{{60 * time.Second, syscall.SIGTERM}}, 0, 0},
		"TERM does nothing":        {[]rundir.Verdict{verdict}, []rundir.Event{verdict.Event()}, false, syscall.SIGKILL, []at{{60 * time.Second, syscall.SIGTERM}, {75 * time.Second, syscall.SIGKILL}}, 0, 0},
		"Slurm ends the job":       {[]rundir.Verdict{verdict}, []rundir.Event{verdict.Event()}, true, syscall.SIGTERM, []at{{3 * time.Second, syscall.SIGTERM}}, 0, 0},
		"a restart":                {[]rundir.Verdict{restart}, []rundir.Event{restart.Event()}, false, 0, nil, 0, 0},
		"a restart that has begun": {[]rundir.Verdict{restart}, []rundir.Event{restart.Event(), begin(2, "12")}, false, 0, nil, 0, 0},
		"a restart that is over":   {[]rundir.Verdict{restart, again}, []rundir.Event{restart.Event(), begin(2, "12"), again.Event()}, false, syscall.SIGTERM, []at{{60 * time.Second, syscall.SIGTERM}}, 0, 0},
		"a restart after it":       {[]rundir.Verdict{verdict}, []rundir.Event{verdict.Event()}, false, 0, nil, 8 * time.Second, 0},
		"a restart just before":    {[]rundir.Verdict{verdict}, []rundir.Event{verdict.Event()}, false, 0, nil, 61 * time.Second, 62 * time.Second},
		"another job's attempt":    {[]rundir.Verdict{verdict}, []rundir.Event{verdict.Event(), begin(2, "13")}, false, 0, nil, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			run := attemptRun(t, "")
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
				w := &stepWatch{
					a: &attempt{run: run, number: 1, jobID: "12"}, leave: cmp.Or(tc.leave, time.Minute),
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
						if err := errors.Join(err, run.WriteVerdict(restart), run.Append(restart.Event()), run.Append(begin(2, "12"))); err != nil {
							t.Error(err)
						}
					}).Stop()
				}
				e := &env{Out: &bytes.Buffer{}, Err: &bytes.Buffer{}, Dir: "/", Now: time.Now, Environ: []string{"SLURM_JOB_ID=12"}}
				if err := w.watch(ctx, e); err != nil || time.Since(start) > time.Hour {
					t.Errorf("ended with %v, after %v", err, time.Since(start))
				}
				if !slices.Equal(got, tc.want) {
					t.Errorf("srun got %v, want %v", got, tc.want)
				}
			})
		})
	}
}

// The process that the batch script starts ends srun soon after Slurm's TERM, and not itself first.
func TestWatchOutlivesTerm(t *testing.T) {
	run := attemptRun(t, "")
	n, err := run.ClaimAttempt()
	v := rundir.Verdict{Attempt: n, Cause: "node", Exit: 1}
	if err := errors.Join(err, run.Append(rundir.Event{Event: rundir.EventBegin, Attempt: n, Job: "12"}), run.WriteVerdict(v), run.Append(v.Event())); err != nil {
		t.Fatal(err)
	}
	start := func(name string, args ...string) (cmd *exec.Cmd, ended chan error) {
		cmd, ended = exec.Command(name, args...), make(chan error, 1)
		cmd.Env = append(os.Environ(), "SLURM_JOB_ID=12", "DDPBATCH_ATTEMPT="+strconv.Itoa(n))
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmd.Process.Kill() })
		go func() { ended <- cmd.Wait() }()
		return cmd, ended
	}
	srun, srunEnded := start("sleep", "300")
	watch, watchEnded := start("ddpbatch", "attempt", "watch", "--srun", strconv.Itoa(srun.Process.Pid), run.Path())
	awaitIgnored(t, watch.Process.Pid, syscall.SIGUSR1) // main's handlers are there by then
	if err := watch.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	late := time.After(testkit.Patience) // without TERM it waits for minutes
	select {
	case err := <-srunEnded:
		if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
			t.Errorf("srun ended by itself: %v", err)
		}
	case <-late:
		t.Fatal("srun still runs")
	}
	select {
	case err := <-watchEnded:
		if err != nil {
			t.Errorf("the watch ended with %v", err)
		}
	case <-late:
		t.Error("the watch goes on after srun")
	}
}

// awaitIgnored waits until a process ignores a signal.
func awaitIgnored(t *testing.T, pid int, sig syscall.Signal) {
	t.Helper()
	testkit.Eventually(t, fmt.Sprintf("process %d ignores %v", pid, sig), func() bool {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(text), "\nSigIgn:\t")
		mask, _, _ := strings.Cut(rest, "\n")
		ignored, err := strconv.ParseUint(mask, 16, 64)
		return err == nil && ignored&(1<<(sig-1)) != 0
	})
}

// An agent that is cut off writes its last word some seconds after the others have lost it. What agent 0 writes instead may come only when
// its workers, and those of the other agents, have had their grace, one after the other.
func TestWatchWaitsForAgentZero(t *testing.T) {
	run := attemptRun(t, "") // launch.grace is one minute
	w, err := newStepWatch(&env{Dir: "/", Environ: []string{"SLURM_JOB_ID=12", "DDPBATCH_ATTEMPT=1"}}, run.Path(), os.Getpid())
	if err != nil || w.leave < 145*time.Second || w.leave > 5*time.Minute {
		t.Errorf("waits for %v, %v", w.leave, err)
	}
}
