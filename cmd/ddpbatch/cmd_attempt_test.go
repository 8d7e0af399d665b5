package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"ddpbatch/internal/attempt"
	"ddpbatch/internal/exit"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/testkit"
	"ddpbatch/internal/testkit/fakeslurm"
)

// cancel runs `ddpbatch cancel` for a run's job while the controller cannot be reached. Only the ledger records the request.
func (p *pretendSlurm) cancel(e *env, run *rundir.Dir, id string) {
	p.t.Helper()
	p.says("squeue.err", silence)
	if err := run.SetJobID(id); err != nil {
		p.t.Fatal(err)
	}
	if err := cancelAll(p.t.Context(), e, "/", []string{run.Path()}); err == nil || !strings.Contains(err.Error(), "marked as cancelled") {
		p.t.Errorf("cancel: %v", err)
	}
}

// If a job was canceled while it waited, it ends as soon as it begins.
func TestAttemptBeginHonoursCancel(t *testing.T) {
	for _, test := range []struct {
		name  string
		start int
		ended func(*testing.T, *pretendSlurm, *rundir.Dir) // how the earlier job ended
		want  []string
	}{
		{"before its first start", 0, nil, []string{"cancel", "give-up"}},
		{"after a requeue", 1, func(t *testing.T, p *pretendSlurm, run *rundir.Dir) {
			e, _, _ := p.env(0, 1)
			err := errors.Join(runAttemptBegin(t.Context(), e, run.Path()),
				run.WriteVerdict(rundir.Verdict{Attempt: 1, Cause: "stopped", Exit: 75, Saved: true}))
			if err != nil {
				t.Fatal(err)
			}
			if err := runAttemptEnd(t.Context(), e, run.Path(), attempt.SrunEnd{Code: 75}); exitCode(err) != exit.Requeue {
				t.Fatalf("exit code %d: %v", exitCode(err), err)
			}
		}, []string{"begin", "end", "requeue", "cancel", "give-up"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, run := newPretendSlurm(t), attemptRun(t, "")
			p.says("scontrol.out", runningFacts)
			if test.ended != nil {
				test.ended(t, p, run)
			}
			e, out, _ := p.env(test.start, 0)
			p.cancel(e, run, "12")
			for range 2 { // a second begin, if scancel still fails, ends in the same way
				if err := runAttemptBegin(t.Context(), e, run.Path()); exitCode(err) != exit.Never ||
					!strings.Contains(err.Error(), "cancelled") || out.Len() > 0 {
					t.Errorf("exit code %d: %v; said %q", exitCode(err), err, out)
				}
			}
			if got := eventsOf(t, run); !slices.Equal(got[:len(test.want)], test.want) {
				t.Errorf("ledger %q, want %q", got, test.want)
			}
			// the job that a user starts after that is another one, and it is not canceled
			if err := run.Append(rundir.Event{Time: e.Now(), Event: rundir.EventResume}); err != nil {
				t.Fatal(err)
			}
			e.Environ = append(e.Environ, "SLURM_JOB_ID=13")
			if err := runAttemptBegin(t.Context(), e, run.Path()); err != nil || !strings.Contains(out.String(), "DDPBATCH_ATTEMPT=") {
				t.Errorf("after a resume: %v; said %q", err, out)
			}
		})
	}
}

// element begins the given attempt of element 3 of an array, and ends it with v.
func (p *pretendSlurm) element(root *rundir.Dir, array string, attempt int, v rundir.Verdict) (*rundir.Dir, *env) {
	p.t.Helper()
	p.says("scontrol.out", strings.Replace(runningFacts, "JobId=12 ", fmt.Sprintf("JobId=%[1]s ArrayJobId=%[1]s ArrayTaskId=3 ", array), 1))
	e, _, _ := p.env(0, attempt)
	e.Environ = append(e.Environ, "SLURM_ARRAY_JOB_ID="+array, "SLURM_ARRAY_TASK_ID=3")
	err := runAttemptBegin(p.t.Context(), e, root.Path())
	run, taskErr := root.Task(3)
	if err := errors.Join(err, taskErr); err != nil {
		p.t.Fatal(err)
	}
	v.Attempt, v.JobID, v.Time = attempt, array+"_3", e.Now()
	if err := errors.Join(run.WriteVerdict(v), run.Append(v.Event())); err != nil {
		p.t.Fatal(err)
	}
	return run, e
}

// A cancel of a whole array cancels each of its elements, also those that wait. It does not cancel the elements of a later array.
func TestCancelOfAnArrayEndsEachElement(t *testing.T) {
	p, root := newPretendSlurm(t), attemptRun(t, "")
	run, e := p.element(root, "12", 1, savedVerdict)
	p.cancel(e, root, "12")
	err := runAttemptEnd(t.Context(), e, run.Path(), attempt.SrunEnd{Code: 75})
	if got, want := eventsOf(t, run), []string{"begin", "end", "cancel", "give-up"}; exitCode(err) != exit.Never ||
		!slices.Equal(got, want) {
		t.Errorf("exit code %d (%v), ledger %q, want %q", exitCode(err), err, got, want)
	}
	if calls := p.calls(); slices.ContainsFunc(calls, func(call string) bool { return strings.HasPrefix(call, "scontrol requeue") }) {
		t.Errorf("ran %q", calls)
	}
	for array, want := range map[string]int{"12": exit.Never, "13": 0} {
		e, _, _ := p.env(0, 0)
		e.Environ = append(e.Environ, "SLURM_ARRAY_JOB_ID="+array, "SLURM_ARRAY_TASK_ID=4")
		if err := runAttemptBegin(t.Context(), e, root.Path()); exitCode(err) != want {
			t.Errorf("element 4 of array %s: exit code %d (%v), want %d", array, exitCode(err), err, want)
		}
	}
}

// After a user resumes an array, each element judges its progress anew, and may use its nodes again.
func TestResumeJudgesEachElementAfresh(t *testing.T) {
	p, root := newPretendSlurm(t), attemptRun(t, "on = [\"node\"]\nno_progress = 2")
	e, _, _ := p.env(0, 0)
	var run *rundir.Dir
	for attempt := 1; attempt <= 2; attempt++ {
		run, e = p.element(root, "12", attempt, lostVerdict)
	}
	if err := runAttemptEnd(t.Context(), e, run.Path(), attempt.SrunEnd{Code: 1}); exitCode(err) != 1 {
		t.Fatalf("exit code %d: %v", exitCode(err), err)
	}
	if err := root.SetJobID("12"); err != nil {
		t.Fatal(err)
	}
	p.says("sbatch.out", "13\n")
	p.QueueOf(root, "12 FAILED")
	if err := runResume(t.Context(), e, root, resumeOptions{}); err != nil {
		t.Fatal(err)
	}
	again := lostVerdict
	again.Host, again.Nodes = "n1", []string{"n1"}
	run, e = p.element(root, "13", 3, again)
	err := runAttemptEnd(t.Context(), e, run.Path(), attempt.SrunEnd{Code: 1})
	history, ledgerErr := run.Ledger()
	last := history[len(history)-1]
	if exitCode(err) != exit.Requeue || ledgerErr != nil || last.Event != rundir.EventRequeue || !slices.Equal(last.Nodes, []string{"n1"}) {
		t.Errorf("exit code %d (%v), %+v (%v); want a requeue without n1", exitCode(err), err, last, ledgerErr)
	}
}

// After Slurm's TERM the watch process, which the batch script starts, soon ends srun. It does not end before srun.
func TestWatchOutlivesTerm(t *testing.T) {
	run := fakeslurm.Run(t, "")
	n, err := run.ClaimAttempt()
	v := rundir.Verdict{Attempt: n, Cause: "node", Exit: 1}
	if err := errors.Join(err, run.Append(rundir.Event{Event: rundir.EventBegin, Attempt: n, Job: "12"}), run.WriteVerdict(v),
		run.Append(v.Event())); err != nil {
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
	awaitIgnored(t, watch.Process.Pid, syscall.SIGUSR1) // main has installed its handlers by then
	if err := watch.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	late := time.After(testkit.Patience) // if watch ignores TERM, it waits for minutes
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
