package supervise

import (
	"strings"
	"testing"

	"ddpbatch/mpi/launch/blame"
)

// A report that is too long loses words, and no death.
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
