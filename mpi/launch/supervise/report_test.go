package supervise

import (
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/rundir"
	"ddpbatch/mpi/launch/blame"
	"ddpbatch/mpi/launch/rendezvous"
)

// A report that is too long loses last lines, but keeps all deaths.
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

// AllEnded is false if a process of agent 0's workers does not end, because agent 0 cannot restart workers beside it. Such processes of
// another agent do not count.
func TestAgent0sStuckWorkersHaveNotEnded(t *testing.T) {
	for stuck, want := range map[int]bool{0: false, 1: true} {
		s := &Supervisor{reports: map[int]endsReport{0: {}, 1: {}}}
		s.reports[stuck] = endsReport{Stuck: 1}
		if got := s.AllEnded(); got != want {
			t.Errorf("where a process of agent %d does not end: all have ended is %t", stuck, got)
		}
	}
}

// If workers had not given a sign of life for a minute, or for a third of the round, when a signal stopped the run, the verdict says that
// they may hang.
func TestStopOfSilentRanksSaysThatTheyMayHang(t *testing.T) {
	const m, s = time.Minute, time.Second
	for name, test := range map[string]struct {
		lasted time.Duration
		silent []time.Duration
		exit   int
		want   string // "": the verdict does not say so
	}{
		"most of a short job":         {m, []time.Duration{55 * s, 58 * s}, 1, "for at least 55s: the run may hang"},
		"a minute of a long job":      {600 * m, []time.Duration{m, 2 * m}, 1, "for at least 1m0s: the run may hang"},
		"one node's ranks only":       {m, []time.Duration{55 * s, s}, 1, ""},
		"a short time":                {20 * s, []time.Duration{10 * s, 10 * s}, 1, ""},
		"a report is missing":         {m, []time.Duration{55 * s}, 1, ""},
		"they are not watched":        {m, []time.Duration{0, 0}, 1, ""},
		"one wakes up and saves":      {m, []time.Duration{55 * s, 55 * s}, 75, ""},
		"they wake up and all finish": {m, []time.Duration{55 * s, 55 * s}, 0, ""},
	} {
		layout := &rendezvous.Layout{World: 1, Members: []rendezvous.Member{{Host: "n1"}, {Index: 1, Host: "n2"}}}
		sup := &Supervisor{cfg: one(nil), round: &round{layout: layout}, reports: map[int]endsReport{}}
		for i, silent := range test.silent {
			sup.reports[i] = endsReport{Silent: silent}
		}
		deaths := []blame.Death{{Exit: test.exit, Stopping: true, Ended: test.lasted}}
		interrupted := rundir.Verdict{Cause: causeCancelled, Signal: 15, Message: "told to stop"}
		v, _ := sup.accountInterrupted(interrupted, deaths, countEnds(deaths))
		if test.want == "" && strings.Contains(v.Message, "hang") || !strings.Contains(v.Message, test.want) {
			t.Errorf("%s: %q, want %q", name, v.Message, test.want)
		}
	}
}
