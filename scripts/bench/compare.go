package main

import "math"

// compare holds each of our columns against the best peer of the row.
func (t *table) compare(sides []side) {
	for _, r := range t.Rows {
		best := r.bestPeer(sides)
		for _, side := range sides {
			if side.ours {
				r.Comparisons = append(r.Comparisons, r.against(side.name, best))
			}
		}
	}
}

// bestPeer is the one with the smallest median among those whose results were right.
func (r *row) bestPeer(sides []side) string {
	best, least := "", math.Inf(1)
	for _, side := range sides {
		if m := r.Samples[side.name].median(); !side.ours && r.Wrong[side.name] == 0 && m < least {
			best, least = side.name, m
		}
	}
	return best
}

// comparison is ours against one peer, launch by launch.
type comparison struct {
	Side     string   `json:"side"`
	Peer     string   `json:"peer"` // "": there was none
	Ratio    number   `json:"ratio"`
	Interval interval `json:"interval"`
	Verdict  string   `json:"verdict"` // win, even, lose
}

func (r *row) against(side, peer string) comparison {
	c := comparison{Side: side, Peer: peer, Verdict: "lose"}
	var ratios samples
	for turn, us := range r.Samples[side] {
		if peer != "" && !math.IsNaN(us/r.Samples[peer][turn]) {
			ratios = append(ratios, us/r.Samples[peer][turn])
		}
	}
	c.Ratio, c.Interval = number(ratios.median()), ratios.interval()
	switch {
	case r.Wrong[side] > 0 || len(ratios) == 0 && peer != "":
		// ours is wrong, or gave nothing: the row is lost
	case peer == "" || c.Interval.High < 1:
		c.Verdict = "win"
	case c.Interval.Low <= 1:
		c.Verdict = "even"
	}
	return c
}
