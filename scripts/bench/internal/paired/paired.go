package paired

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"

	"ddpbatch/scripts/bench/internal/stats"
)

// InTurn launches each side once per turn. Each turn begins with another side, so that none is always the first.
func InTurn(ctx context.Context, what string, turns, sides int, progress io.Writer, launch func(turn, side int) error) error {
	for turn := range turns {
		fmt.Fprintf(progress, "%s: launch %d of %d\n", what, turn+1, turns)
		for i := range sides {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := launch(turn, (turn+i)%sides); err != nil {
				return err
			}
		}
	}
	return nil
}

// Missing returns the samples for a number of launches before the first one.
func Missing(launches int) stats.Samples { return slices.Repeat(stats.Samples{math.NaN()}, launches) }

// Comparison compares the launches of two sides.
type Comparison struct {
	Ratio    stats.Number   `json:"ratio"` // ours / theirs, launch by launch; the median
	Interval stats.Interval `json:"interval"`
}

// Compare compares the launches that both sides have.
func Compare(ours, theirs stats.Samples) Comparison {
	var ratios stats.Samples
	for turn := range min(len(ours), len(theirs)) {
		ratios = append(ratios, ours[turn]/theirs[turn])
	}
	return Comparison{stats.Number(ratios.Median()), ratios.Interval()}
}

// Verdict describes an interval of ratios of times, ours / theirs. It returns "-" if there is none, or a useless one.
func Verdict(i stats.Interval) string {
	switch {
	case i.Coverage == 0:
		return "-"
	case i.High < 1:
		return "win"
	case i.Low > 1:
		return "lose"
	}
	return "even"
}

// Row holds the results of one side. In a table our row is the first.
type Row struct {
	Side  string        `json:"side"`
	Times stats.Samples `json:"times"` // by launch

	Comparison // of times; missing for our row
}

// NewRow returns the row of a side before its first launch.
func NewRow(side string, launches int) Row {
	return Row{Side: side, Times: Missing(launches), Comparison: Compare(nil, nil)}
}

// Against compares ours with r.
func (r *Row) Against(ours Row) { r.Comparison = Compare(ours.Times, r.Times) }

// Verdict returns the verdict on the times, or a loss if one of our launches failed.
func (r Row) Verdict(ours Row) string {
	if slices.ContainsFunc(ours.Times, math.IsNaN) {
		return "lose"
	}
	return Verdict(r.Interval)
}
