package launch

import (
	"context"
	"strings"
	"syscall"
	"testing"

	"ddpbatch/internal/testkit"
	"ddpbatch/mpi/launch/blame"
)

// An agent that is lost with its worker at work is lost work, although all that report are done.
func TestLostAfterTheOthersAreDone(t *testing.T) {
	for range 3 { // whatever agent 0 is at by then
		w := newWorld(t, []int{1, 1}, "wait", "0")
		w.agents[0].Command = append(w.agents[0].Command[:1:1], "say", "x")
		agent := w.away(1)
		first := w.begin(t.Context(), 0)
		w.awaitMarks("1")
		testkit.Eventually(t, "the end of agent 0's worker", func() bool { return strings.Contains(w.log.String(), "worker ended") })
		must(t, agent.Process.Kill())
		if r := <-first; r.Cause != "node" || r.Exit == 0 || len(r.Nodes) != 1 || r.Nodes[0] != "n2" {
			t.Errorf("verdict is %+v", r.Verdict)
		}
	}
}

// So it is where all were told to stop, and the others have ended with 0.
func TestLostWhileStopping(t *testing.T) {
	w := newWorld(t, []int{1, 1}, "wait", "0")
	w.agents[1].Command = []string{"/bin/sh", "-c", "trap '' TERM; : > $LAUNCH_TEST_FOLDER/1; while :; do sleep 0.05; done"}
	agent := w.away(1)
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	first := w.begin(ctx, 0)
	w.awaitMarks("0", "1")
	cancel(SignalError{syscall.SIGTERM})
	testkit.Eventually(t, "the end of agent 0's worker", func() bool { return strings.Contains(w.log.String(), "worker ended") })
	must(t, agent.Process.Kill())
	if r := <-first; r.Cause == "done" || r.Exit == 0 || r.Saved {
		t.Errorf("verdict is %+v", r.Verdict)
	}
}

// A report that is too long loses words, and no death.
func TestReportFits(t *testing.T) {
	var r report
	for rank := range 200 {
		r.Deaths = append(r.Deaths, blame.Death{Rank: rank, Exit: 1, Tail: []string{strings.Repeat("<", 8<<10)}})
	}
	text, err := r.encode(maxReport)
	if err != nil || len(text) > maxReport || strings.Count(string(text), `"rank":`) != 200 || !strings.Contains(string(text), "u003c") {
		t.Errorf("%d bytes, %v", len(text), err)
	}
	if r.Deaths[199].Tail == nil {
		t.Error("the report itself was cut")
	}
	if text, err := r.encode(100); err == nil {
		t.Errorf("200 deaths fit into %d bytes", len(text))
	}
}
