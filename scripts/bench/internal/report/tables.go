package report

import (
	"fmt"
	"io"
	"math"
	"strings"

	"ddpbatch/scripts/bench/internal/paired"
	"ddpbatch/scripts/bench/internal/stats"
)

// Markdown writes a table whose columns are also aligned as plain text, to the right.
func Markdown(w io.Writer, titles []string, rows [][]string) {
	widths := make([]int, len(titles))
	for _, row := range append([][]string{titles}, rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], len(cell))
		}
	}
	rule := make([]string, len(titles))
	for i, width := range widths {
		rule[i] = strings.Repeat("-", width-1) + ":"
	}
	for _, row := range append([][]string{titles, rule}, rows...) {
		for i, cell := range row {
			fmt.Fprintf(w, "| %*s ", widths[i], cell)
		}
		fmt.Fprintln(w, "|")
	}
}

// Certainty describes the coverage of intervals for a number of launches.
func Certainty(launches int) string {
	c := make(stats.Samples, launches).Interval().Coverage
	if c < 0.95 {
		return fmt.Sprintf("a chance of only %.0f %% (take 6 launches or more for 95 %%)", 100*float64(c))
	}
	return fmt.Sprintf("a chance of %.1f %%", 100*float64(c))
}

// Interval formats an interval, and its coverage if that is less than Certainty says for the number of launches.
func Interval(i stats.Interval, launches int) string {
	return interval(i, Ratio(i.Low), Ratio(i.High), make(stats.Samples, launches).Interval().Coverage)
}

// interval formats an interval, and its coverage if that is less than expected.
func interval(i stats.Interval, low, high string, expected stats.Number) string {
	text := fmt.Sprintf("[%s, %s]", low, high)
	switch {
	case i.Coverage == 0:
		return "-"
	case i.Coverage < expected:
		text += fmt.Sprintf(" (%.1f %%)", 100*float64(i.Coverage))
	}
	return text
}

// Compared returns the cells ratio, interval and verdict of a row in a table whose first row is ours. Our row has none.
func Compared(r, ours paired.Row) []string {
	if r.Side == ours.Side {
		return []string{"", "", ""}
	}
	return []string{Ratio(r.Ratio), Interval(r.Interval, len(r.Times)), r.Verdict(ours)}
}

// Range formats the smallest and the largest sample.
func Range(s stats.Samples) string {
	there := s.Sorted()
	if len(there) == 0 {
		return "-"
	}
	return Significant(there[0]) + " to " + Significant(there[len(there)-1])
}

// Median formats the median, and says how many launches it is from if some are missing.
func Median(s stats.Samples) string {
	text := Significant(s.Median())
	if there := len(s.Sorted()); there < len(s) {
		text += fmt.Sprintf(" (%d of %d)", there, len(s))
	}
	return text
}

// Ratio formats a ratio with two digits after the point.
func Ratio(n stats.Number) string { return Number("%.2f", float64(n)) }

// Number formats a number, or a placeholder if it is missing.
func Number(format string, x float64) string {
	if math.IsNaN(x) {
		return "-"
	}
	return fmt.Sprintf(format, x)
}

// Significant formats a number with three digits, or with all digits before the point.
func Significant(x float64) string {
	switch size := math.Abs(x); {
	case size < 10:
		return fmt.Sprintf("%.2f", x)
	case size < 100:
		return fmt.Sprintf("%.1f", x)
	}
	return Number("%.0f", x)
}
