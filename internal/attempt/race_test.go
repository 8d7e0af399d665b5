package attempt

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/exit"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/testkit/fakeslurm"
)

// If the controller is busy or restarts, the batch script asks it until it answers.
func TestAttemptEndWaitsForSlurm(t *testing.T) {
	for _, test := range []struct {
		name    string
		lines   string // shell lines that run before scontrol
		facts   string
		verdict rundir.Verdict
		signals []string
		want    []string // events after the attempt's end
		calls   []string
		left    time.Duration // until the job's time limit; 0: the job has no limit
	}{
		{"a preemption, told late", `[ "$1" = show ] && sleep 2`,
			fmt.Sprintf(fakeslurm.Facts, "RUNNING Reason=None PreemptTime=2026-11-21T00:55:18", 0, "(null)"),
			stoppedAndSaved, nil, []string{"end", "requeue"}, []string{"scontrol requeue 12"}, 0},
		{"not there at first", `[ "$1" = requeue ] && [ ! -e DIR/up ] && touch DIR/up && echo "` + fakeslurm.Silence + `" >&2 && exit 1`,
			fakeslurm.RunningFacts,
			fakeslurm.Saved, nil, []string{"requeue"}, []string{"scontrol requeue 12"}, 0},
		{"no answer to any question, and the workers saved", `[ "$1" = show ] && echo "` + fakeslurm.Silence + `" >&2 && exit 1`, "",
			stoppedAndSaved, []string{"TERM"}, []string{"end", "requeue"}, []string{"scontrol requeue 12"}, 0},
		{"done, and the answer was lost",
			`[ "$1" = requeue ] && sed -i s/Restarts=0/Restarts=1/ DIR/scontrol.out && echo "Socket timed out on send/recv operation" ` +
				`>&2 && exit 1`, fakeslurm.RunningFacts,
			fakeslurm.Saved, nil, []string{"requeue"}, nil, 0},
		{"the backup controller is about to take over",
			`[ ! -e DIR/up ] && { [ "$1" = requeue ] && touch DIR/up; echo "Slurm backup controller in standby mode" >&2; exit 1; }`,
			fakeslurm.RunningFacts,
			// it stops, because its limit is near
			fakeslurm.Saved, nil, []string{"end", "requeue"}, []string{"scontrol requeue 12"}, 20 * time.Second},
		{"never there", `echo "` + fakeslurm.Silence + `" >&2; exit 1`, "", fakeslurm.Saved, []string{"TERM"}, []string{"requeue"}, nil, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := newPretendSlurm(t)
			p.Says("scontrol.out", test.facts)
			run, e := p.begun("", test.verdict)
			if test.left > 0 { // the script waits at most half of this time for the scheduler to answer
				e.Environ = append(e.Environ, fmt.Sprintf("SLURM_JOB_END_TIME=%d", e.Now().Add(test.left).Unix()))
			}
			p.First("scontrol", strings.ReplaceAll(test.lines, "DIR", p.Dir))
			if test.facts == "" {
				e.Environ = append(e.Environ, fakeslurm.Impatient)
			}
			err := e.end(t, run, SrunEnd{Code: test.verdict.Exit, Signals: test.signals})
			if exitCode(err) != exit.Requeue {
				t.Errorf("exit code %d (%v), want 75", exitCode(err), err)
			}
			if got, want := fakeslurm.Events(t, run), append([]string{"begin", "end"}, test.want...); !slices.Equal(got, want) {
				t.Errorf("ledger %q, want %q", got, want)
			}
			if calls := p.Calls(); !slices.Equal(calls, test.calls) {
				t.Errorf("ran %q, want %q", calls, test.calls)
			}
		})
	}
}

// A person's cancel counts until the moment before the requeue.
func TestAttemptEndHonoursCancel(t *testing.T) {
	t.Run("while the job is tried without a node", func(t *testing.T) {
		p := newPretendSlurm(t)
		p.Says("scontrol.out", fakeslurm.RunningFacts)
		run, e := p.begun("", fakeslurm.Lost)
		p.Says("ending", fakeslurm.EndingFacts)
		p.First("sbatch", fmt.Sprintf("cp %[1]s/ending %[1]s/scontrol.out", p.Dir))
		err := e.end(t, run, SrunEnd{Code: 1})
		if got, want := fakeslurm.Events(t, run), []string{"begin", "end", "requeue", "refused", "give-up"}; exitCode(err) != 1 ||
			!slices.Equal(got, want) {
			t.Errorf("exit code %d (%v), ledger %q, want %q", exitCode(err), err, got, want)
		}
		if v, err := run.Verdict(1); err != nil || v.Requeue {
			t.Errorf("verdict %+v, %v", v, err)
		}
		if calls := p.Calls(); len(calls) != 1 || !strings.HasPrefix(calls[0], "sbatch --test-only") {
			t.Errorf("ran %q", calls)
		}
	})
	t.Run("before scancel has arrived", func(t *testing.T) {
		p := newPretendSlurm(t)
		p.Says("scontrol.out", fakeslurm.RunningFacts)
		run, e := p.begun("", fakeslurm.Saved)
		if err := run.Append(rundir.Event{Time: e.Now(), Event: rundir.EventCancel, Job: "12", Detail: "job 12"}); err != nil {
			t.Fatal(err)
		}
		err := e.end(t, run, SrunEnd{Code: 75})
		if got, want := fakeslurm.Events(t, run), []string{"begin", "end", "cancel", "give-up"}; exitCode(err) != exit.Never ||
			!slices.Equal(got, want) {
			t.Errorf("exit code %d (%v), ledger %q, want %q", exitCode(err), err, got, want)
		}
		if calls := p.Calls(); slices.Contains(calls, "scontrol requeue 12") {
			t.Errorf("ran %q", calls)
		}
	})
	t.Run("while Slurm is busy with the requeue", func(t *testing.T) {
		p := newPretendSlurm(t)
		p.Says("scontrol.out", fakeslurm.RunningFacts)
		run, e := p.begun("", fakeslurm.Saved)
		line, err := json.Marshal(rundir.Event{Time: time.Now(), Event: rundir.EventCancel, Job: "12"})
		if err != nil {
			t.Fatal(err)
		}
		p.First("scontrol", fmt.Sprintf(`[ "$1" = requeue ] && echo '%s' >>%s`, line, filepath.Join(run.Path(), "ledger.jsonl")))
		err = e.end(t, run, SrunEnd{Code: 75})
		if got, want := fakeslurm.Events(t, run),
			[]string{"begin", "end", "requeue", "cancel", "refused", "give-up"}; exitCode(err) != exit.Never || !slices.Equal(got, want) {
			t.Errorf("exit code %d (%v), ledger %q, want %q", exitCode(err), err, got, want)
		}
		if v, err := run.Verdict(1); err != nil || v.Requeue {
			t.Errorf("verdict %+v, %v", v, err)
		}
		if calls := p.Calls(); !slices.Equal(calls, []string{"scontrol requeue 12", "scancel 12"}) {
			t.Errorf("ran %q", calls)
		}
	})
}

// Slurm may requeue a job that is about to be done. The job stays in the queue until it is COMPLETED, and exits with 0 when it begins
// again.
func TestDoneStaysDone(t *testing.T) {
	p := newPretendSlurm(t)
	p.Says("scontrol.out", fakeslurm.RequeuedFacts)
	run, e := p.begun("", doneVerdict)
	if err := e.end(t, run, SrunEnd{Signals: []string{"TERM"}}); err != nil {
		t.Error(err)
	}
	if calls := p.Calls(); len(calls) != 0 {
		t.Errorf("ran %q", calls)
	}
	e, out, _ := p.env(1, 0)
	if err := e.begin(t, run); err != nil || out.String() != "exit 0\n" {
		t.Errorf("begins with %q, %v", out, err)
	}
	if n, err := run.NewestAttempt(); err != nil || n != 1 {
		t.Errorf("attempt %d (%v) was claimed", n, err)
	}
}

// An attempt that was claimed and has not begun gets no verdict.
func TestAttemptEndLeavesUnbegunAlone(t *testing.T) {
	for name, facts := range map[string]string{"of another start": fakeslurm.RequeuedFacts,
		"of agents that ended in between": fakeslurm.RunningFacts} {
		t.Run(name, func(t *testing.T) {
			p := newPretendSlurm(t)
			p.Says("scontrol.out", facts)
			run, e := p.begun("", fakeslurm.Lost)
			if _, err := run.ClaimAfter(1); err != nil {
				t.Fatal(err)
			}
			if err := e.end(t, run, SrunEnd{Code: 1}); exitCode(err) != exit.Requeue {
				t.Errorf("exit code %d: %v", exitCode(err), err)
			}
			if v, err := run.Verdict(2); err == nil {
				t.Errorf("attempt 2 has got a verdict: %+v", v)
			}
			if got := fakeslurm.Events(t, run); !slices.Equal(got, []string{"begin", "end", "requeue"}) {
				t.Errorf("ledger %q", got)
			}
		})
	}
}

// A run that loses its first node at each start is given up, whatever requeue.on names.
func TestLostStartsEnd(t *testing.T) {
	p, run := newPretendSlurm(t), fakeslurm.Run(t, "on = [\"preempt\"]")
	for start := range 9 {
		e, _, _ := p.env(start, 0)
		err := e.begin(t, run)
		if err == nil {
			continue
		}
		if start != 3 || exitCode(err) != exit.Never || !strings.Contains(err.Error(), "no progress") {
			t.Errorf("start %d: %v", start, err)
		}
		return
	}
	t.Error("goes on for ever")
}

// Once a job was preempted, Slurm 24.05 and later put it into the queue again the next time its batch script ends, whatever the exit code
// (slurmctld's proc_req.c, GRACE_PREEMPT). If the run was given up by then, this requeue does not run it again. A person may still start it
// again.
func TestRequeuedLateIsNotRunAgain(t *testing.T) {
	facts := strings.Replace(fmt.Sprintf(fakeslurm.Facts, "RUNNING Reason=None", 2, "(null)"), "BatchFlag=1", "BatchFlag=%d", 1)
	for name, test := range map[string]struct {
		cause string // the cause of the first requeue
		says  [2]string
		again bool // the second restart runs
	}{
		"preempted before, put back by Slurm":   {"preempt", [2]string{"scontrol.out", fmt.Sprintf(facts, 2)}, false},
		"preempted before, Slurm is silent":     {"preempt", [2]string{"scontrol.err", "Unable to contact slurm controller\n"}, false},
		"preempted before, put back by hand":    {"preempt", [2]string{"scontrol.out", fmt.Sprintf(facts, 1)}, true},
		"at its limit before, put back by hand": {"timeout", [2]string{"scontrol.out", fmt.Sprintf(facts, 2)}, true},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPretendSlurm(t)
			run, e := p.begun("", rundir.Verdict{Cause: test.cause, Exit: 75, Saved: true})
			requeued := rundir.Event{Time: e.Now(), Event: rundir.EventRequeue, Attempt: 1, Cause: test.cause}
			if err := run.Append(requeued); err != nil {
				t.Fatal(err)
			}
			start := func(n int) error {
				e, _, _ := p.env(n, 0)
				return e.begin(t, run)
			}
			gaveUp := rundir.Event{Time: e.Now(), Event: rundir.EventGiveUp, Attempt: 2, Cause: "crash"}
			if err := errors.Join(start(1), run.Append(gaveUp)); err != nil {
				t.Fatal(err)
			}
			p.Says(test.says[0], test.says[1])
			err := start(2)
			refused := exitCode(err) == exit.Never && strings.Contains(err.Error(), "ddpbatch resume")
			if test.again && err != nil || !test.again && !refused {
				t.Fatalf("the second restart: %v", err)
			}
			if err := start(3); !test.again && err != nil {
				t.Errorf("a person starts it again: %v", err)
			}
			want := 3 // attempts
			if got, err := run.NewestAttempt(); !test.again && (err != nil || got != want) {
				t.Errorf("%d attempts, %v; want %d", got, err, want)
			}
		})
	}
}

// An attempt that is asked to end before its workers start is judged in the same way as any other.
func TestAttemptEndJudgesWhatNeverStarted(t *testing.T) {
	for _, test := range []struct {
		name  string
		end   SrunEnd
		facts string
		exit  int
	}{
		{"preempted", SrunEnd{Code: 143, Signals: []string{"TERM"}, Unstarted: true},
			fmt.Sprintf(fakeslurm.Facts, "RUNNING Reason=None PreemptTime=2026-11-21T00:55:18", 0, "(null)"), exit.Requeue},
		{"cancelled", SrunEnd{Code: 143, Signals: []string{"TERM"}, Unstarted: true}, fakeslurm.EndingFacts, 143},
		{"warned", SrunEnd{Code: 75, Signals: []string{"USR2"}, Unstarted: true}, fakeslurm.RunningFacts, exit.Requeue},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, run := newPretendSlurm(t), fakeslurm.Run(t, "")
			p.Says("scontrol.out", test.facts)
			e, _, _ := p.env(0, 1)
			if err := e.begin(t, run); err != nil {
				t.Fatal(err)
			}
			if err := e.end(t, run, test.end); exitCode(err) != test.exit {
				t.Errorf("exit code %d: %v", exitCode(err), err)
			}
			if v, err := run.Verdict(1); err != nil || !strings.Contains(v.Message, "before its workers were started") ||
				!v.Unstarted || v.Saved {
				t.Errorf("verdict %+v, %v", v, err)
			}
		})
	}
}
