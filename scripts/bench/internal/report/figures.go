package report

import (
	"context"
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

// Experiment gives samples of figures, so many times.
type Experiment struct {
	Name    string
	Times   int
	Figures []Figure                                               // without samples
	Measure func(ctx context.Context, turn int) ([]float64, error) // a sample of each figure
}

// MeasureFigures does one experiment after the other. With an error come the samples from before it.
func MeasureFigures(ctx context.Context, experiments []Experiment, progress io.Writer) (all []Figure, err error) {
	for _, e := range experiments {
		for turn := range e.Times {
			fmt.Fprintf(progress, "%s: %d of %d\n", e.Name, turn+1, e.Times)
			samples, err := e.Measure(ctx, turn)
			if err == nil {
				err = ctx.Err()
			}
			if err != nil && turn > 0 {
				all = append(all, e.Figures...)
			}
			if err != nil {
				return all, fmt.Errorf("%s: %w", e.Name, err)
			}
			for i, sample := range samples {
				e.Figures[i].Samples = append(e.Figures[i].Samples, sample)
			}
		}
		all = append(all, e.Figures...)
	}
	return all, nil
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
