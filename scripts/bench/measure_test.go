package main

import (
	"bytes"
	"math"
	"strings"
	"testing"
)

var threeSides = []side{{name: "ddpbatch", ours: true}, {name: "A"}, {name: "B"}}

// filled is a table of two sizes; each side's samples are of the launches.
func filled(ours, a, b []float64) table {
	t := newTable(options{launches: len(ours), begin: 64, end: 64, factor: 2}, setting{"allreduce", "shm", 2}, threeSides)
	for turn := range ours {
		for name, us := range map[string]float64{"ddpbatch": ours[turn], "A": a[turn], "B": b[turn]} {
			if !math.IsNaN(us) {
				t.add(turn, name, outcome{samples: []sample{{size: 64, us: us}}})
			}
		}
	}
	return t
}

func TestCompare(t *testing.T) {
	nan := math.NaN()
	for _, tt := range []struct {
		name          string
		ours, a, b    []float64
		peer, verdict string
		ratio         float64
	}{
		{"faster", []float64{1, 1, 1}, []float64{2, 2, 2}, []float64{4, 4, 4}, "A", "win", 0.5},
		{"slower", []float64{8, 8, 8}, []float64{9, 9, 9}, []float64{4, 4, 4}, "B", "lose", 2},
		{"now and then", []float64{1, 3, 3}, []float64{2, 2, 2}, []float64{9, 9, 9}, "A", "even", 1.5},
		// launch 2 was slow for everybody: the ratio is of launches, not of medians
		{"paired", []float64{1, 50, 3}, []float64{2, 100, 6}, []float64{999, 999, 999}, "A", "win", 0.5},
		{"a peer that gave nothing", []float64{1, 1, 1}, []float64{nan, nan, nan}, []float64{4, 4, 4}, "B", "win", 0.25},
		{"ours gave nothing", []float64{nan, nan, nan}, []float64{2, 2, 2}, []float64{4, 4, 4}, "A", "lose", nan},
		{"one launch of ours is missing", []float64{1, nan, 1}, []float64{2, 2, 2}, []float64{4, 4, 4}, "A", "lose", 0.5},
		{"the fastest peer was there once", []float64{1, 1, 1}, []float64{0.5, nan, nan}, []float64{4, 4, 4}, "B", "win", 0.25},
		{"no peer was there each time", []float64{1, 1, 1}, []float64{2, nan, 2}, []float64{nan, 4, 4}, "", "-", nan},
		{"one launch is no comparison", []float64{1}, []float64{2}, []float64{4}, "A", "-", 0.5},
		{"nobody was there each time", []float64{1, nan, 1}, []float64{2, nan, 2}, []float64{nan, 4, 4}, "", "lose", nan},
		{"all peers gave nothing", []float64{1, 1, 1}, []float64{nan, nan, nan}, []float64{nan, nan, nan}, "", "-", nan},
	} {
		table := filled(tt.ours, tt.a, tt.b)
		table.compare(threeSides)
		c := table.Rows[0].Comparisons[0]
		if got := float64(c.Ratio); c.Peer != tt.peer || c.Verdict != tt.verdict || got != tt.ratio && !(math.IsNaN(got) && math.IsNaN(tt.ratio)) {
			t.Errorf("%s: %s, %v, %s; want %s, %v, %s", tt.name, c.Peer, got, c.Verdict, tt.peer, tt.ratio, tt.verdict)
		}
	}
}

func TestWrongResultsDoNotCount(t *testing.T) {
	table := filled([]float64{2, 2}, []float64{1, 1}, []float64{4, 4})
	table.Rows[0].Wrong["A"] = 1
	table.compare(threeSides)
	if c := table.Rows[0].Comparisons[0]; c.Peer != "B" || c.Verdict != "win" {
		t.Errorf("against a peer whose results are wrong: %+v", c)
	}
	table = filled([]float64{1, 1}, []float64{2, 2}, []float64{4, 4})
	table.Rows[0].Wrong["ddpbatch"] = 1
	table.compare(threeSides)
	if c := table.Rows[0].Comparisons[0]; c.Verdict != "lose" {
		t.Errorf("fast and wrong: %+v", c)
	}
	var text bytes.Buffer
	table.print(&text)
	for _, want := range []string{"1 WRONG", "0 of 1 comparisons won", "allreduce, shm, 2 ranks"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the table does not say %q:\n%s", want, text.String())
		}
	}
}

// Rows of a launch of ours that failed after them, or did not end, win nothing.
func TestFailedLaunchOfOursIsLost(t *testing.T) {
	for name, out := range map[string]outcome{"failed": {fault: "exit code 3: no such device"}, "hung": {hung: true}} {
		table := filled([]float64{1, 1}, []float64{2, 2}, []float64{4, 4})
		out.samples = []sample{{size: 64, us: 1}}
		table.add(1, "ddpbatch", out)
		table.compare(threeSides)
		if c := table.Rows[0].Comparisons[0]; c.Verdict != "lose" || c.Ratio != 0.5 {
			t.Errorf("a launch of ours %s: %+v", name, c)
		}
	}
}

func TestPrintWithoutPeer(t *testing.T) {
	table := filled([]float64{1, 1}, []float64{2, math.NaN()}, []float64{math.NaN(), 4})
	table.compare(threeSides)
	var text bytes.Buffer
	table.print(&text)
	if !strings.Contains(text.String(), "0 of 1 comparisons won") {
		t.Errorf("a row without a peer is won:\n%s", text.String())
	}
}

// An interval of fewer launches says how much less it is worth than the header promises.
func TestPrintCoverage(t *testing.T) {
	ours := []float64{1, 1, 1, 1, 1, 1, 1}
	peer := []float64{2, 2, 2, 2, 2, 2, 2}
	const note = "(93.8 %)" // of 5 launches: 1 - 2/2^5
	for _, missing := range []int{0, 2} {
		for i := range missing {
			ours[i] = math.NaN()
		}
		table := filled(ours, peer, peer)
		table.compare(threeSides)
		var text bytes.Buffer
		table.print(&text)
		if strings.Contains(text.String(), note) != (missing > 0) || strings.Contains(text.String(), "%") != (missing > 0) {
			t.Errorf("%d launches are missing:\n%s", missing, text.String())
		}
	}
}

func TestPrintKeepsFaults(t *testing.T) {
	table := filled([]float64{1, 1}, []float64{2, 2}, []float64{4, 4})
	table.add(1, "A", outcome{fault: "exit code 3: no such device"})
	table.add(0, "B", outcome{hung: true})
	table.compare(threeSides)
	var text bytes.Buffer
	table.print(&text)
	for _, want := range []string{"A, launch 2: exit code 3: no such device", "B did not end by itself after its last row in 1 of 2 launches", "1 of 1 comparisons won"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the table does not say %q:\n%s", want, text.String())
		}
	}
}
