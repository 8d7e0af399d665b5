package main

import (
	"fmt"
	"slices"
	"time"
)

// setting is what one table is about.
type setting struct {
	Collective string `json:"collective"`
	Transport  string `json:"transport"`
	Ranks      int    `json:"ranks"`
}

func (s setting) String() string {
	return fmt.Sprintf("%s, %s, %d ranks", s.Collective, s.Transport, s.Ranks)
}

// inBlocks are the collectives whose sizes are those of all ranks' blocks (docs/cli.md, "bench").
var inBlocks = []string{"allgather", "reducescatter", "alltoall"}

// unsized tells whether a table has but one row, of no size.
func (s setting) unsized() bool { return s.Collective == "barrier" || s.Collective == "startup" }

// rowSizes are those that all sides give rows of: in whole elements of 4 bytes, as many for each block.
func (o options) rowSizes(s setting) []int64 {
	if s.unsized() {
		return []int64{0}
	}
	unit := int64(4)
	if slices.Contains(inBlocks, s.Collective) {
		unit *= int64(s.Ranks)
	}
	var sizes []int64
	for size := o.begin; size <= o.end; size *= o.factor {
		if size >= unit {
			sizes = append(sizes, size/unit*unit)
		}
	}
	return sizes
}

// settings are those of all tables that have a row.
func (o options) settings() []setting {
	var out []setting
	for _, collective := range o.collectives {
		for _, transport := range o.transports {
			for i, ranks := range o.ranks {
				if collective == "pingpong" {
					ranks = 2
					if i > 0 {
						continue
					}
				}
				if s := (setting{collective, transport, ranks}); len(o.rowSizes(s)) > 0 {
					out = append(out, s)
				}
			}
		}
	}
	return out
}

// launchLimit is when a launch is given up: far beyond what any has taken on a busy machine.
func (o options) launchLimit() time.Duration {
	return time.Minute + 20*o.budget*time.Duration(len(o.rowSizes(setting{}))) + time.Duration(o.end)*200 // 0.2 s a MB
}

func countLaunches(o options, sides []side, settings []setting) int {
	n := 0
	for _, s := range settings {
		n += o.launches * len(takingPart(sides, s))
	}
	return n
}

// estimate is how long a quiet machine needs, roughly: a row takes its budget, or what its fewest calls take
// at about 1 GB/s and rank.
func estimate(o options, sides []side, settings []setting) time.Duration {
	var total time.Duration
	for _, s := range settings {
		var rows time.Duration
		for _, size := range o.rowSizes(s) {
			rows += max(o.budget*12/10, time.Duration(size)*6*time.Duration(s.Ranks))
		}
		for _, side := range takingPart(sides, s) {
			total += time.Duration(o.launches) * (side.startup + rows)
		}
	}
	return total.Round(time.Second)
}
