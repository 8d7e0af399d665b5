package main

import (
	"math"
	"slices"

	"ddpbatch/scripts/bench/internal/report"
	"ddpbatch/scripts/bench/internal/stats"
)

// compare holds each of our columns against the best peer of the row.
func (t *table) compare(sides []side) {
	for _, r := range t.Rows {
		best := r.bestPeer(sides)
		for _, side := range sides {
			if side.ours {
				c := r.against(side.name, best)
				if t.failed[side.name] {
					c.Verdict = "lose"
				}
				r.Comparisons = append(r.Comparisons, c)
			}
		}
	}
}

// bestPeer is the one with the smallest median among those that gave a right result in every launch; empty: there is none.
func (r *row) bestPeer(sides []side) string {
	best, least := "", math.Inf(1)
	for _, side := range sides {
		if m := r.Samples[side.name].Median(); !side.ours && r.sound(side.name) && m < least {
			best, least = side.name, m
		}
	}
	return best
}

// sound tells whether a side gave a result in every launch, and none that was wrong.
func (r *row) sound(side string) bool {
	return r.Wrong[side] == 0 && !slices.ContainsFunc(r.Samples[side], math.IsNaN)
}

// comparison is ours against one peer, launch by launch.
type comparison struct {
	Side     string         `json:"side"`
	Peer     string         `json:"peer"` // "": there was none
	Ratio    stats.Number   `json:"ratio"`
	Interval stats.Interval `json:"interval"`
	Verdict  string         `json:"verdict"` // win, even, lose; "-": ours are sound, and there is no peer, or too few launches of it
}

func (r *row) against(side, peer string) comparison {
	c := comparison{Side: side, Peer: peer}
	var ratios stats.Samples
	for turn, us := range r.Samples[side] {
		if peer != "" && !math.IsNaN(us/r.Samples[peer][turn]) {
			ratios = append(ratios, us/r.Samples[peer][turn])
		}
	}
	c.Ratio, c.Interval = stats.Number(ratios.Median()), ratios.Interval()
	c.Verdict = report.Verdict(c.Interval)
	if !r.sound(side) { // the row is lost, whatever the rest of it says
		c.Verdict = "lose"
	}
	return c
}
