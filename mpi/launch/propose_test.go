package launch

import (
	"testing"

	"ddpbatch/internal/rundir"
)

// What agent 0 puts on disk before its workers have ended: Slurm may kill it by then, and nobody else's word is to stand but that of those that had
// given it up.
func TestEarlyWord(t *testing.T) {
	lost := rundir.Verdict{Cause: causeNode, Host: "n1", Nodes: []string{"n1"}, Exit: exitFailed, Message: "theirs"} // agent 0 is on n1
	for _, test := range []struct {
		name string
		mine rundir.Verdict
		said *rundir.Verdict // by another agent
		want string          // whose word is on disk then
	}{
		{"nobody said", rundir.Verdict{Cause: causeCancelled, Signal: 15, Exit: 143}, nil, "mine"},
		{"given up, and woken up to be ended", rundir.Verdict{Cause: causeCancelled, Signal: 15, Exit: 143}, &lost, "theirs"},
		{"the other one was cut off", rundir.Verdict{Cause: causeNode, Host: "n2", Exit: exitFailed}, &lost, "mine"},
		{"a crash", rundir.Verdict{Cause: causeCrash, Exit: 3}, &lost, "mine"},
		{"all were told to end", rundir.Verdict{Cause: causeCancelled, Signal: 15, Exit: 143}, &rundir.Verdict{Cause: causeCancelled, Host: "n2", Message: "theirs"}, "mine"},
		{"they lost another one", rundir.Verdict{Cause: causeCancelled, Signal: 15, Exit: 143}, &rundir.Verdict{Cause: causeNode, Host: "n3", Message: "theirs"}, "mine"},
		{"the first rank has saved", rundir.Verdict{Cause: causeStopped, Exit: exitRequeue, Requeue: true, Saved: true}, nil, "mine"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, []int{1}, "say", "x")
			c, err := w.agents[0].withDefaults()
			must(t, err)
			if test.said != nil {
				said := *test.said
				said.Attempt, said.FirstRank = c.Attempt, -1
				must(t, w.dir.WriteVerdict(said))
			}
			s := &supervisor{cfg: c, round: &round{m: &meeting{}}}
			test.mine.Attempt, test.mine.Message = c.Attempt, "mine"
			s.decided(test.mine)
			s.early.Wait()
			got, err := w.dir.Verdict(c.Attempt)
			must(t, err)
			if got.Message != test.want {
				t.Errorf("on disk is %+v, want what is %s", got, test.want)
			}
			if got.Saved { // others have to save, too
				t.Error("it says that the run has saved, before all workers have ended")
			}
			if test.want == "mine" && (got.Cause != test.mine.Cause || got.Exit != test.mine.Exit || got.Requeue != test.mine.Requeue) {
				t.Errorf("on disk is %+v, want %+v", got, test.mine)
			}
			if s.outcome == nil || s.outcome.Saved != test.mine.Saved {
				t.Errorf("the outcome is %+v, want %+v", s.outcome, test.mine)
			}
		})
	}
}

// Where agent 0 is lost, another one's word is put on disk, which knows nothing of how the others' workers ended.
func TestLastWordWithoutAgent0(t *testing.T) {
	w := newWorld(t, []int{1}, "say", "x")
	c, err := w.agents[0].withDefaults()
	must(t, err)
	c.Index = 1
	s := &supervisor{cfg: c, outcome: &rundir.Verdict{Attempt: c.Attempt, FirstRank: 1, Cause: causeStopped, Exit: exitRequeue, Requeue: true, Saved: true}}
	if v, next, err := s.conclude(t.Context()); err != nil || next != nil || v.Cause != causeStopped {
		t.Errorf("concluded %+v, %v, %v", v, next, err)
	}
	if v, err := w.dir.Verdict(c.Attempt); err != nil || v.Saved || !v.Requeue || v.Exit != exitRequeue {
		t.Errorf("on disk is %+v, %v", v, err)
	}
}
