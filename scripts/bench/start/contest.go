package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"

	"ddpbatch/scripts/bench/internal/stats"
)

// contest is of sides that do the same: the first one, ours, against each of the others.
type contest struct {
	title string
	sides []side
}

// table is what was measured of one contest with one number of ranks.
type table struct {
	Title  string   `json:"title"`
	Ranks  int      `json:"ranks"`
	Rows   []row    `json:"rows"`
	Faults []string `json:"faults"`
}

// row is of one side. Times are milliseconds since the command.
type row struct {
	Side     string         `json:"side"`
	Met      stats.Samples  `json:"met"`
	Ended    stats.Samples  `json:"ended"`
	Ratio    stats.Number   `json:"ratio"` // of Met, ours / theirs, launch by launch: its median; missing for ours
	Interval stats.Interval `json:"interval"`
}

// measure launches all sides in turn, as often as asked, after a first time that does not count: files are in memory then, and there is
// a key file. Every turn begins with another side.
func (c contest) measure(ctx context.Context, launches, ranks int, progress io.Writer) (table, error) {
	t := table{Title: c.title, Ranks: ranks, Faults: []string{}}
	for _, s := range c.sides {
		missing := slices.Repeat(stats.Samples{math.NaN()}, launches)
		t.Rows = append(t.Rows, row{Side: s.name, Met: missing, Ended: slices.Clone(missing)})
	}
	for turn := -1; turn < launches; turn++ {
		fmt.Fprintf(progress, "%s, %d ranks: launch %d of %d\n", c.title, ranks, turn+1, launches)
		for i := range c.sides {
			which := (max(turn, 0) + i) % len(c.sides)
			got, err := launch(ctx, launchLimit, c.sides[which], ranks)
			if err != nil {
				return t, err
			}
			if turn >= 0 {
				t.add(turn, which, got)
			}
		}
	}
	t.compare()
	return t, nil
}

func (t *table) add(turn, side int, got launched) {
	r := &t.Rows[side]
	r.Met[turn], r.Ended[turn] = got.met, got.ended
	if got.fault != "" {
		t.Faults = append(t.Faults, fmt.Sprintf("%s, launch %d: %s", r.Side, turn+1, got.fault))
	}
}

// compare holds the first row against each of the others.
func (t *table) compare() {
	for i := range t.Rows {
		r := &t.Rows[i]
		var ratios stats.Samples
		for turn, theirs := range r.Met {
			if ratio := t.Rows[0].Met[turn] / theirs; i > 0 && !math.IsNaN(ratio) {
				ratios = append(ratios, ratio)
			}
		}
		r.Ratio, r.Interval = stats.Number(ratios.Median()), ratios.Interval()
	}
}
