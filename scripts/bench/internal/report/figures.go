package report

import (
	"fmt"
	"io"
	"slices"

	"ddpbatch/scripts/bench/internal/stats"
)

// Figure is something of ours that has no peer.
type Figure struct {
	What    string        `json:"what"`
	Goal    string        `json:"goal"` // "": none
	Unit    string        `json:"unit"`
	Samples stats.Samples `json:"samples"`
}

// Figures writes them as a table of Markdown. The interval is where the median lies of all launches there could be.
func Figures(w io.Writer, figures []Figure) {
	var rows [][]string
	for _, f := range figures {
		span := "-"
		if there := f.Samples.Sorted(); len(there) > 0 {
			span = Significant(slices.Min(there)) + " to " + Significant(slices.Max(there))
		}
		rows = append(rows, []string{f.What, Significant(f.Samples.Median()), around(f.Samples.Interval()), span, f.Unit, f.Goal})
	}
	Markdown(w, []string{"what", "median", "interval", "range", "unit", "goal"}, rows)
}

// around shows an interval, and its coverage where that is less than 95 %.
func around(i stats.Interval) string {
	text := fmt.Sprintf("[%s, %s]", Significant(float64(i.Low)), Significant(float64(i.High)))
	switch {
	case i.Coverage == 0:
		return "-"
	case i.Coverage < 0.95:
		text += fmt.Sprintf(" (%.1f %%)", 100*float64(i.Coverage))
	}
	return text
}
