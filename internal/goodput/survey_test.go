package goodput

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/rundir"
)

// lost returns the end of an attempt that is blamed on nodes.
func lost(at time.Time, attempt int, cause string, nodes ...string) rundir.Event {
	return rundir.Event{Time: at, Event: rundir.EventEnd, Attempt: attempt, Cause: cause, Nodes: nodes}
}

// leftOut returns the end of an attempt that ran without n3, because n3 failed its check.
func leftOut(at time.Time, attempt int, cause string) rundir.Event {
	e := lost(at, attempt, cause)
	e.Unfit = []string{"n3"}
	return e
}

func TestNodesThatFailedOftenAndLately(t *testing.T) {
	const day = 24 * time.Hour
	ago := func(d time.Duration) time.Time { return noon.Add(-d) }
	tests := []struct {
		name   string
		events []rundir.Event
		want   string // node, failures, score
		often  []string
	}{
		{"none", nil, "", nil},
		{"once", []rundir.Event{lost(ago(0), 1, "node", "n3")}, "n3 1 1.00", nil},
		{"a week ago counts half", []rundir.Event{lost(ago(7*day), 1, "node", "n3")}, "n3 1 0.50", nil},
		{"twice in three days", []rundir.Event{lost(ago(3*day), 1, "node", "n3"), lost(ago(0), 2, "hang", "n3")},
			"n3 2 1.74", []string{"n3"}},
		{"twice, two weeks ago", []rundir.Event{lost(ago(15*day), 1, "node", "n3"), lost(ago(14*day), 2, "node", "n3")}, "n3 2 0.48", nil},
		{"one failure that ended two attempts", []rundir.Event{lost(ago(5*time.Minute), 1, "node", "n3"), lost(ago(0), 2, "node", "n3")},
			"n3 1 1.00", nil},
		{"crashes are the program's", []rundir.Event{lost(ago(day), 1, "crash", "n3"), lost(ago(0), 2, "oom", "n3")}, "", nil},
		{"a cause that is better known later", []rundir.Event{lost(ago(day), 1, "node", "n3"), lost(ago(day), 1, "preempt")}, "", nil},
		{"by the rank that ended first alone",
			[]rundir.Event{{Time: ago(0), Event: rundir.EventEnd, Attempt: 1, Cause: "node", Node: "n9"}}, "n9 1 1.00", nil},
		{"the worst comes first", []rundir.Event{lost(ago(3*day), 1, "node", "n3", "n4"), lost(ago(day), 2, "node", "n4")},
			"n4 2 1.65, n3 1 0.74", []string{"n4"}},
		{"drained by Slurm", []rundir.Event{{Time: ago(0), Event: rundir.EventEnd, Attempt: 1, Cause: "node", Nodes: []string{"n3"},
			Drain: true}}, "", nil},
		{"failed its check, and the run went on without it", []rundir.Event{
			{Time: ago(day), Event: rundir.EventBegin, Attempt: 1, Job: "7"}, leftOut(ago(day-time.Hour), 1, "crash"),
			// a restart checks nothing
			{Time: ago(day - time.Hour), Event: rundir.EventBegin, Attempt: 2, Job: "7"}, leftOut(ago(0), 2, "done"),
		}, "n3 1 0.91", nil},
		{"failed the checks of two starts", []rundir.Event{
			{Time: ago(day), Event: rundir.EventBegin, Attempt: 1, Job: "7"}, leftOut(ago(day-time.Hour), 1, "preempt"),
			{Time: ago(day - 2*time.Hour), Event: rundir.EventBegin, Attempt: 2, Job: "7", Start: 1}, leftOut(ago(0), 2, "done"),
		}, "n3 2 1.82", []string{"n3"}},
		{"failed its check, so that the run did not begin", []rundir.Event{
			{Time: ago(time.Hour), Event: rundir.EventBegin, Attempt: 1, Job: "7"},
			{Time: ago(0), Event: rundir.EventEnd, Attempt: 1, Cause: "node", Node: "n3", Nodes: []string{"n3"}, Unfit: []string{"n3"}},
		}, "n3 1 1.00", nil},
		{"failed its check, in an attempt of which the ledger lacks the beginning", []rundir.Event{leftOut(ago(0), 1, "crash")},
			"n3 1 1.00", nil},
		{"of a clock that is ahead", []rundir.Event{lost(ago(-day), 1, "node", "n3")}, "n3 1 1.00", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var nodes Nodes
			must(t, nodes.AddAll(made(t, tt.events, "")))
			var got, often []string
			for _, f := range nodes.Failed(noon) {
				got = append(got, fmt.Sprintf("%s %d %.2f", f.Node, f.Failures, f.Score))
				if f.Often() {
					often = append(often, f.Node)
				}
			}
			if strings.Join(got, ", ") != tt.want || !slices.Equal(often, tt.often) {
				t.Errorf("failed: %q, often %q; want %q, %q", got, often, tt.want, tt.often)
			}
		})
	}
}

func TestPretendNodesDoNotCount(t *testing.T) {
	run := made(t, []rundir.Event{lost(noon, 1, "node", "node2")}, "")
	spec := run.Spec()
	spec.Kind = "simulate"
	must(t, run.WriteSpec(spec))
	var nodes Nodes
	must(t, nodes.AddAll(run))
	if got := nodes.Failed(noon); len(got) > 0 {
		t.Errorf("%+v have failed", got)
	}
}

func TestSurveySumsNodeHours(t *testing.T) {
	done := made(t, []rundir.Event{submit(0, "7"), begin(3600, 1, "7", 0), end(3735, 1, "done")}, trained(3640, 1, 10, 100))
	mute := made(t, []rundir.Event{submit(0, "8"), begin(0, 1, "8", 0), end(3600, 1, "done")}, "")
	open := made(t, []rundir.Event{submit(0, "9"), begin(0, 1, "9", 0)}, trained(10, 1, 10, 100))
	_, err := open.ClaimAttempt()
	must(t, err)
	broken := made(t, nil, "")
	must(t, os.Mkdir(filepath.Join(broken.Path(), "ledger.jsonl"), 0o700))
	for _, ended := range []bool{false, true} {
		s := Surveyor{Now: at(7200), Ended: func(runs []*rundir.Dir) []bool {
			if len(runs) != 1 || runs[0] != open {
				t.Errorf("asked of %d runs, want that which has no end", len(runs))
			}
			return []bool{ended}
		}}
		got, err := s.Survey([]*rundir.Dir{done, mute, open, broken})
		if err == nil || !strings.Contains(err.Error(), broken.Path()) || strings.Contains(err.Error(), done.Path()) {
			t.Errorf("error %v, want one that names the run whose ledger is none", err)
		}
		const perSecond = 2 / 3600.0 // node-hours of two nodes
		want := 100*perSecond + 7200*perSecond
		if ended { // it ended at its last line
			want = 100*perSecond + 100*perSecond
		}
		if s := got.Total; s.Runs != 3 || s.QueuedS != 3600 || math.Abs(s.Unknown-2) > 1e-9 {
			t.Errorf("in all %+v", s)
		}
		if s := got.Total; math.Abs(s.Productive-want) > 1e-9 || math.Abs(*s.Goodput-want/(s.Total-2)) > 1e-9 {
			t.Errorf("in all %+v, want %v productive", s, want)
		}
		if len(got.Jobs) != 1 || got.Jobs[0].Name != "made" || got.Jobs[0].Total != got.Total.Total {
			t.Errorf("by name %+v", got.Jobs)
		}
	}
}

// Failures before From do not count.
func TestFailuresOfNodesSinceThenCount(t *testing.T) {
	run := made(t, []rundir.Event{
		submit(0, "7"), begin(0, 1, "7", 0), lost(at(100), 1, "node", "n1"), begin(200, 2, "7", 1), lost(at(5000), 2, "node", "n2"),
	}, "")
	for from, want := range map[time.Time]string{{}: "n2 n1", at(100): "n2 n1", at(101): "n2", at(5001): ""} {
		got, err := Surveyor{From: from, Now: at(7200), Ended: func(open []*rundir.Dir) []bool { return make([]bool, len(open)) }}.
			Survey([]*rundir.Dir{run})
		must(t, err)
		var names []string
		for _, n := range got.Nodes {
			names = append(names, n.Node)
		}
		if strings.Join(names, " ") != want {
			t.Errorf("since %v: %q have failed, want %q", from, names, want)
		}
	}
}

// Waits for saves before a point in time are not subtracted from the time after it. A line whose loss is not a JSON number counts like any
// other.
func TestWaitsSinceThenCount(t *testing.T) {
	run := made(t, []rundir.Event{submit(0, "7"), begin(100, 1, "7", 0), end(225, 1, "crash"), event(226, rundir.EventGiveUp, 1)},
		trained(130, 1, 10, 20)+trained(150, 1, 30, 40, `,"save_stall_s":8`)+
			strings.ReplaceAll(trained(170, 1, 50, 100, `,"save_stall_s":3`), "0.5", "NaN"))
	for from, want := range map[float64]string{
		0: "queued 100, starting 20, productive 89, saving 11, lost/crash 6", 150: "productive 67, saving 3, lost/crash 6",
	} {
		got, err := new(Accounts).between(run, false, at(from), at(999))
		must(t, err)
		if parts(got) != want {
			t.Errorf("since %v: %q, want %q", from, parts(got), want)
		}
	}
}

func TestOnlyTheTimeSinceThenCounts(t *testing.T) {
	run := made(t, []rundir.Event{submit(0, "7"), begin(100, 1, "7", 0), end(225, 1, "crash"), event(226, rundir.EventGiveUp, 1)},
		trained(130, 1, 10, 100))
	for from, want := range map[float64]string{
		0: "queued 100, starting 20, productive 100, lost/crash 6", 50: "queued 50, starting 20, productive 100, lost/crash 6",
		150: "productive 70, lost/crash 6", 500: "",
	} {
		got, err := new(Accounts).between(run, false, at(from), at(999))
		must(t, err)
		if parts(got) != want {
			t.Errorf("since %v: %q, want %q", from, parts(got), want)
		}
	}
}
