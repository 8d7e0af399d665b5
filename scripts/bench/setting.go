package main

import (
	"fmt"
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
				out = append(out, setting{collective, transport, ranks})
			}
		}
	}
	return out
}

// launchLimit is when a launch is given up: far beyond what any has taken on a busy machine.
func (o options) launchLimit() time.Duration {
	return time.Minute + 20*o.budget*time.Duration(o.sizes()) + time.Duration(o.end)*200 // 0.2 s a MB
}

// sizes counts the rows of a table.
func (o options) sizes() int {
	n := 0
	for size := o.begin; size <= o.end; size *= o.factor {
		n++
	}
	return n
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
		for size := o.begin; size <= o.end; size *= o.factor {
			rows += max(o.budget*12/10, time.Duration(size)*6*time.Duration(s.Ranks))
		}
		if s.Collective == "barrier" || s.Collective == "startup" {
			rows = o.budget
		}
		for _, side := range takingPart(sides, s) {
			total += time.Duration(o.launches) * (side.startup + rows)
		}
	}
	return total.Round(time.Second)
}
