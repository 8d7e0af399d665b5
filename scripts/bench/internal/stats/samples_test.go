package stats

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"testing"
)

func TestMedianLeavesOutWhatFailed(t *testing.T) {
	nan := math.NaN()
	for _, tt := range []struct {
		s    Samples
		want float64
	}{
		{Samples{3}, 3}, {Samples{1, 2}, 1.5}, {Samples{9, 1, 5}, 5}, {Samples{nan, 4, nan, 2, 3}, 3},
	} {
		if got := tt.s.Median(); got != tt.want {
			t.Errorf("%v: %v, want %v", tt.s, got, tt.want)
		}
	}
	if got := (Samples{nan}).Median(); !math.IsNaN(got) {
		t.Errorf("the median of nothing is %v", got)
	}
}

// The ranks are those of a published table: Conover, Practical Nonparametric Statistics, quantile test with p = 0.5.
func TestIntervalHasThePublishedRanks(t *testing.T) {
	for n, want := range map[int][2]float64{
		1: {1, 1}, 5: {1, 5}, // even the whole range covers less than 95 %
		6: {1, 6}, 7: {1, 7}, 8: {1, 8}, 9: {2, 8}, 11: {2, 10}, 12: {3, 10}, 15: {4, 12}, 20: {6, 15},
	} {
		s := make(Samples, n)
		for i, at := range rand.Perm(n) {
			s[at] = float64(i + 1)
		}
		got := s.Interval()
		if float64(got.Low) != want[0] || float64(got.High) != want[1] {
			t.Errorf("%d samples: [%v, %v], want %v", n, got.Low, got.High, want)
		}
		if (got.Coverage >= 0.95) != (n >= 6) {
			t.Errorf("%d samples: coverage %v", n, got.Coverage)
		}
	}
}

// The interval covers the true median as often as its coverage states.
func TestIntervalCoversTheMedianAsOftenAsItSays(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	const trials, n = 20_000, 9
	held := 0
	for range trials {
		s := make(Samples, n)
		for i := range s {
			s[i] = random.ExpFloat64()
		}
		if iv := s.Interval(); float64(iv.Low) <= math.Ln2 && math.Ln2 <= float64(iv.High) {
			held++
		}
	}
	want := float64(make(Samples, n).Interval().Coverage)
	if got := float64(held) / trials; math.Abs(got-want) > 0.005 { // three standard deviations of 20,000 trials
		t.Errorf("the median was covered in %v of the trials, and the interval says %v", got, want)
	}
}

func TestFailedSamplesAreNullInJSON(t *testing.T) {
	text, err := json.Marshal(Samples{1.5, math.NaN(), math.Inf(1)})
	if err != nil || string(text) != "[1.5,null,null]" {
		t.Errorf("%s, %v", text, err)
	}
}
