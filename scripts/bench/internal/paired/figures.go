package paired

import (
	"context"
	"fmt"
	"io"

	"ddpbatch/scripts/bench/internal/stats"
)

// Figure is something of ours that has no peer.
type Figure struct {
	What    string        `json:"what"`
	Goal    string        `json:"goal"` // "": none
	Unit    string        `json:"unit"`
	Samples stats.Samples `json:"samples"`
}

// Experiment measures samples of figures, a number of times.
type Experiment struct {
	Name    string
	Times   int
	Figures []Figure                                               // without samples
	Measure func(ctx context.Context, turn int) ([]float64, error) // a sample of each figure
}

// MeasureFigures runs one experiment after the other. If one fails it returns the samples from before it.
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
