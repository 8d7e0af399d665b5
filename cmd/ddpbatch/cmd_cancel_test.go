package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/exit"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/submission"
	"ddpbatch/internal/testkit/fakeslurm"
	"ddpbatch/mpi/launch/recovery"
	"ddpbatch/slurm"
)

// cancel of several jobs cancels and reports each one that it can, even if others fail. Its exit code is the largest of theirs.
func TestCancelOfSeveralEndsAllThatCanBe(t *testing.T) {
	a := fakeslurm.NewArray(t, "0-3")
	p := &pretendSlurm{a.Slurm, t, a.Dir}
	a.Submitted("12")
	a.Submitted("13", a.Ran(1, "12", 3))
	ended, refused := attemptRun(t, ""), attemptRun(t, "")
	p.Must(ended.SetJobID("14"))
	p.Must(refused.SetJobID("15"))
	p.QueueOf(ended, "12_0 RUNNING", "12_[2-3] PENDING", "13_1 RUNNING", "14 FAILED", "15 RUNNING") // all of them are called x
	p.first("scancel", `[ "$1" != 15 ] || { echo 'scancel: error: Access/permission denied' >&2; exit 1; }`)
	for _, test := range []struct {
		names []string
		code  int
	}{
		{[]string{ended.Path(), "/nothing/there", a.Run.Path()}, exit.Usage},
		{[]string{ended.Path(), "/nothing/there", refused.Path(), a.Run.Path()}, exit.Refused},
	} {
		before := len(p.calls())
		e, out, _ := p.env(0, 0)
		err := cancelAll(t.Context(), e, "/", test.names)
		want := []string{"job 14 has ended already: FAILED; there is nothing to cancel", "/nothing/there"}
		if test.code == exit.Refused {
			want = append(want, "Access/permission denied")
		}
		if exitCode(err) != test.code || slices.ContainsFunc(want, func(says string) bool { return !strings.Contains(err.Error(), says) }) {
			t.Errorf("exit code %d: %v; want %d, %q", exitCode(err), err, test.code, want)
		}
		if want := "cancelled job 12\ncancelled job 13\nresume: " + submission.ResumeCommand(a.Run) + "\n"; out.String() != want {
			t.Errorf("said %q, want %q", out, want)
		}
		if calls := p.calls()[before:]; !slices.Contains(calls, "scancel 12") || !slices.Contains(calls, "scancel 13") {
			t.Errorf("ran %q", calls)
		}
	}
}

// An element that was canceled before it began is resumed with its array, which must have ended.
func TestCancelOfAWaitingElementSaysWhenToResume(t *testing.T) {
	a := fakeslurm.NewArray(t, "0-3")
	p := &pretendSlurm{a.Slurm, t, a.Dir}
	a.Submitted("12")
	a.Ran(1, "12", 3)
	a.Queue("12_1 RUNNING", "12_[2-3] PENDING")
	p.first("scancel", "")
	for name, want := range map[string]string{
		a.Run.Path() + "/tasks/3": "cancelled job 12_3\nresume, once the array has ended: " + submission.ResumeCommand(a.Run) + "\n",
		a.Run.Path() + "/tasks/1": "cancelled job 12_1\nresume: " + submission.ResumeCommand(a.Run) + "/tasks/1\n",
	} {
		e, out, _ := p.env(0, 0)
		if err := cancelAll(t.Context(), e, "/", []string{name}); err != nil || out.String() != want {
			t.Errorf("%v, said %q, want %q", err, out, want)
		}
	}
}

// A cancel is not lost if it comes between the moment when Slurm accepts a job and the moment when the command records it.
func TestCancelWhileSubmitted(t *testing.T) {
	for _, by := range []string{"the owner", "root"} {
		t.Run(by, func(t *testing.T) {
			q := newQueue(t)
			parent, run := q.resumable()
			d := must(t, rundir.Open, run)
			submitting := rundir.Event{Time: time.Now(), Event: rundir.EventSubmitting, Detail: rundir.EventResume}
			q.must(d.Append(submitting))
			q.says("jobs/500", "PENDING "+d.ScriptPath())
			if by == "root" { // root writes nothing into another user's run
				e, _, _ := q.env(parent)
				q.must(d.Append(rundir.Event{Time: e.Now(), Event: rundir.EventCancel, Job: "500", Detail: "job 500"}))
			} else {
				e, _, _ := q.env(parent)
				cancelled := false
				e.Now = func() time.Time {
					if !cancelled {
						cancelled = true
						if code, out, errs := q.run(parent, "cancel", run); code != 0 {
							t.Errorf("cancel: %d, %s%s", code, out, errs)
						}
					}
					return time.Now()
				}
				q.must(e.submitEnv().Record(d, slurm.JobID{ID: "500"}, submitting))
				if found := q.events(run, rundir.EventResume); !cancelled || len(found) != 1 {
					t.Errorf("recorded %d times: %+v", len(found), found)
				}
			}
			if err := q.begin(parent, run, "500"); exitCode(err) != exit.Never || !strings.Contains(err.Error(), "cancelled") {
				t.Errorf("the cancelled job begins: %v", err)
			}
			if history := q.ledger(run); !recovery.WasCancelled(append(history, rundir.Event{Event: rundir.EventBegin, Job: "500"})) {
				t.Errorf("the cancel is lost: %+v", history)
			}
			q.is("500", "CANCELLED")
			if code, out, errs := q.run(parent, "resume", run); code != 0 ||
				!strings.HasPrefix(out, "submitted job 501:") && !strings.HasPrefix(out, "submitted job 500:") {
				t.Fatalf("resume: %d, %s%s", code, out, errs)
			}
			q.must(q.begin(parent, run, q.alive()[0]))
		})
	}
}

// A cancel executes nothing from the run, so its owner may cancel it whatever has happened to the run's program.
func TestOwnerCancelsADamagedRun(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string][]string{
		"its program is gone":    {"rm", "bin/ddpbatch"},
		"others can write to it": {"chmod", "g+w", "."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			run := l.submit(victim)
			l.must(victim, "sh", append([]string{"-c", `cd "$0" && exec "$@"`, run}, damage...)...)
			if out, code := l.as(attacker, l.program, "cancel", run); code == 0 {
				t.Errorf("another user cancelled it:\n%s", out)
			}
			l.must(victim, l.program, "cancel", run)
			if calls := l.calls(); calls != "scancel by 4242 500\n" {
				t.Errorf("scancel was called so: %q", calls)
			}
		})
	}
}
