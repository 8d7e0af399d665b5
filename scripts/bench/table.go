package main

import (
	"fmt"
	"math"
	"slices"

	"ddpbatch/scripts/bench/internal/stats"
)

// table is what was measured in one setting.
type table struct {
	Setting setting         `json:"setting"`
	Rows    []*row          `json:"rows"`
	Faults  []string        `json:"faults"`
	Hung    map[string]int  `json:"hung"` // launches that did not end by themselves
	failed  map[string]bool // sides of which a launch failed, or did not end by itself
	sides   []string        // columns
	turns   int             // launches of each side
	bySize  map[int64]*row  // of Rows
}

// row is one size.
type row struct {
	Size        int64                    `json:"size"`
	Samples     map[string]stats.Samples `json:"samples_us"` // by side and turn
	Wrong       map[string]int64         `json:"wrong"`
	Comparisons []comparison             `json:"comparisons"`
}

func newTable(o options, s setting, sides []side) table {
	t := table{Setting: s, turns: o.launches, Faults: []string{}, Hung: map[string]int{}, failed: map[string]bool{}, bySize: map[int64]*row{}}
	for _, side := range sides {
		t.sides = append(t.sides, side.name)
	}
	for _, size := range o.rowSizes(s) {
		r := &row{Size: size, Samples: map[string]stats.Samples{}, Wrong: map[string]int64{}}
		for _, name := range t.sides {
			r.Samples[name] = slices.Repeat(stats.Samples{math.NaN()}, t.turns)
		}
		t.Rows, t.bySize[size] = append(t.Rows, r), r
	}
	return t
}

// add takes in what came of a side's launch. A row that a launch did not give is missing, and is shown so.
func (t *table) add(turn int, side string, out outcome) {
	if out.fault != "" {
		t.Faults = append(t.Faults, fmt.Sprintf("%s, launch %d: %s", side, turn+1, out.fault))
	}
	if out.hung {
		t.Hung[side]++
	}
	if out.fault != "" || out.hung {
		t.failed[side] = true
	}
	for _, s := range out.samples {
		r := t.bySize[s.size]
		if r == nil {
			t.Faults = append(t.Faults, fmt.Sprintf("%s, launch %d: a row of %d bytes, which nobody asked for", side, turn+1, s.size))
			continue
		}
		r.Samples[side][turn] = s.us
		r.Wrong[side] += s.wrong
	}
}
