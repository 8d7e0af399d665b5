package report

import (
	"math"
	"testing"

	"ddpbatch/scripts/bench/internal/stats"
)

func TestVerdict(t *testing.T) {
	for want, all := range map[string][]stats.Samples{
		"win":  {{0.5, 0.9}},
		"lose": {{1.1, 1.2}},
		"even": {{0.9, 1.1}, {1, 1}},
		"-":    {{}, {0.5}, {math.NaN(), 0.5}},
	} {
		for _, ratios := range all {
			if got := Verdict(ratios.Interval()); got != want {
				t.Errorf("%v: %s, want %s", ratios, got, want)
			}
		}
	}
}
