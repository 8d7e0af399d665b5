package main

import (
	"fmt"
	"io"
	"math"
	"slices"

	bench "ddpbatch/scripts/bench/internal/report"
	"ddpbatch/scripts/bench/internal/stats"
)

// report is all that was measured.
type report struct {
	Header  header         `json:"header"`
	Tables  []table        `json:"tables"`
	Figures []bench.Figure `json:"figures"`
}

func (t *table) print(w io.Writer) {
	plural := "s"
	if t.Ranks == 1 {
		plural = ""
	}
	fmt.Fprintf(w, "\n### %d rank%s, %s\n\n", t.Ranks, plural, t.Title)
	var cells [][]string
	for i, r := range t.Rows {
		line := []string{r.Side, median(r.Met), span(r.Met), "", "", "", median(r.Ended)}
		if i > 0 {
			line[3], line[4], line[5] = bench.Ratio(r.Ratio), bench.Interval(r.Interval, len(r.Met)), t.verdict(r)
		}
		cells = append(cells, line)
	}
	bench.Markdown(w, []string{"side", "met, ms", "range", "ratio", "interval", "verdict", "ended, ms"}, cells)
	if len(t.Faults) > 0 {
		fmt.Fprintln(w)
	}
	for _, fault := range t.Faults {
		fmt.Fprintf(w, "- %s\n", fault)
	}
}

// verdict is that of the times, and lost where a launch of ours failed.
func (t *table) verdict(r row) string {
	if slices.ContainsFunc(t.Rows[0].Met, math.IsNaN) {
		return "lose"
	}
	return bench.Verdict(r.Interval)
}

// median says how many launches it is of, where some are missing.
func median(s stats.Samples) string {
	text := bench.Significant(s.Median())
	if there := len(s.Sorted()); there < len(s) {
		text += fmt.Sprintf(" (%d of %d)", there, len(s))
	}
	return text
}

func span(s stats.Samples) string {
	there := s.Sorted()
	if len(there) == 0 {
		return "-"
	}
	return bench.Significant(there[0]) + " to " + bench.Significant(there[len(there)-1])
}

func (r *report) printFigures(w io.Writer) {
	if len(r.Figures) > 0 {
		fmt.Fprintf(w, "\n### agents\n\n")
		bench.Figures(w, r.Figures)
	}
}

// writeJSON writes all to a file; "": it is not asked for.
func (r *report) writeJSON(path string) error {
	if path == "" {
		return nil
	}
	return bench.WriteJSON(path, r)
}
