package main

import (
	"slices"
	"strings"
	"testing"

	"ddpbatch/internal/exit"
	"ddpbatch/internal/submission"
	"ddpbatch/internal/testkit/fakeslurm"
)

// Each job that can be is cancelled, and told, whatever becomes of those that are named beside it. The exit code is the largest of theirs.
func TestCancelSeveral(t *testing.T) {
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
