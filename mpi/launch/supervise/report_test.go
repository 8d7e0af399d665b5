package supervise

import (
	"strings"
	"testing"

	"ddpbatch/mpi/launch/blame"
)

// A report that is too long loses last lines, but no deaths.
func TestReportFits(t *testing.T) {
	var r endsReport
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

// Agent 0 cannot restart workers beside processes that do not end. Those of another agent do not matter to it.
func TestAgent0sStuckWorkersHaveNotEnded(t *testing.T) {
	for stuck, want := range map[int]bool{0: false, 1: true} {
		s := &Supervisor{reports: map[int]endsReport{0: {}, 1: {}}}
		s.reports[stuck] = endsReport{Stuck: 1}
		if got := s.AllEnded(); got != want {
			t.Errorf("where a process of agent %d does not end: all have ended is %t", stuck, got)
		}
	}
}
