package paired

import (
	"math"
	"slices"

	"ddpbatch/scripts/bench/internal/stats"
)

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
