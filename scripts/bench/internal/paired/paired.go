package paired

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"

	"ddpbatch/scripts/bench/internal/stats"
)

// InTurn launches each of so many sides once a turn; every turn begins with another one, so that none is always the first.
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

// Missing are the samples of so many launches before the first one.
func Missing(launches int) stats.Samples { return slices.Repeat(stats.Samples{math.NaN()}, launches) }

// Comparison is what the launches of two sides say of each other.
type Comparison struct {
	Ratio    stats.Number   `json:"ratio"` // ours / theirs, launch by launch: its median
	Interval stats.Interval `json:"interval"`
}

// Compare takes the launches that both sides have.
func Compare(ours, theirs stats.Samples) Comparison {
	var ratios stats.Samples
	for turn := range min(len(ours), len(theirs)) {
		ratios = append(ratios, ours[turn]/theirs[turn])
	}
	return Comparison{stats.Number(ratios.Median()), ratios.Interval()}
}

// Verdict words what an interval of ratios of times, ours / theirs, tells: "-" where there is none, or one
// that is worth nothing.
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

// Row is what was measured of one side. In a table the first row is ours.
type Row struct {
	Side  string        `json:"side"`
	Times stats.Samples `json:"times"` // by launch

	Comparison // of times; missing for ours
}

// NewRow is of a side before its first launch.
func NewRow(side string, launches int) Row {
	return Row{Side: side, Times: Missing(launches), Comparison: Compare(nil, nil)}
}

// Against compares ours with r.
func (r *Row) Against(ours Row) { r.Comparison = Compare(ours.Times, r.Times) }

// Verdict is that of the times, and lost where a launch of ours failed.
func (r Row) Verdict(ours Row) string {
	if slices.ContainsFunc(ours.Times, math.IsNaN) {
		return "lose"
	}
	return Verdict(r.Interval)
}
