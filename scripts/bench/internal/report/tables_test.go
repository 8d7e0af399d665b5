package report

import (
	"math"
	"strings"
	"testing"

	"ddpbatch/scripts/bench/internal/paired"
	"ddpbatch/scripts/bench/internal/stats"
)

// Intervals show their coverage if that is less than 95 %. Numbers below zero have as many digits as others.
func TestFiguresSayWhatIntervalsAreWorth(t *testing.T) {
	for _, tt := range []struct {
		samples stats.Samples
		want    string
	}{
		{stats.Samples{1, 2, 3, 4, 5, 6}, "| x |   3.50 | [1.00, 6.00] | 1.00 to 6.00 |    % |  < 5 |"},
		{stats.Samples{-73.4, 5, 120}, "| x |   5.00 | [-73.4, 120] (75.0 %) | -73.4 to 120 |    % |  < 5 |"},
		{stats.Samples{math.NaN()}, "| x |      - |        - |     - |    % |  < 5 |"},
	} {
		var out strings.Builder
		Figures(&out, "figures", []paired.Figure{{What: "x", Goal: "< 5", Unit: "%", Samples: tt.samples}})
		lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		if got := strings.TrimSpace(lines[len(lines)-1]); strings.Join(strings.Fields(got), " ") != strings.Join(strings.Fields(tt.want),
			" ") {
			t.Errorf("%v: %s, want %s", tt.samples, got, tt.want)
		}
	}
}
