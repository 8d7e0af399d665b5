package report

import (
	"fmt"
	"io"

	"ddpbatch/scripts/bench/internal/paired"
)

// Figures writes figures as a Markdown table under a title, or nothing if there are none. The interval contains the median of all possible
// launches with the stated probability.
func Figures(w io.Writer, title string, figures []paired.Figure) {
	if len(figures) == 0 {
		return
	}
	fmt.Fprintf(w, "\n### %s\n\n", title)
	var rows [][]string
	for _, f := range figures {
		i := f.Samples.Interval()
		around := interval(i, Significant(float64(i.Low)), Significant(float64(i.High)), 0.95)
		rows = append(rows, []string{f.What, Significant(f.Samples.Median()), around, Range(f.Samples), f.Unit, f.Goal})
	}
	Markdown(w, []string{"what", "median", "interval", "range", "unit", "goal"}, rows)
}
