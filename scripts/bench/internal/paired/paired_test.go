package paired

import (
	"context"
	"errors"
	"io"
	"math"
	"slices"
	"testing"

	"ddpbatch/scripts/bench/internal/stats"
)

func TestVerdictComesFromTheInterval(t *testing.T) {
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

// All sides are launched in turn, each turn begins with another side, and an interrupt ends the loop at once.
func TestInTurnLaunchesAllByTurns(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var order []int
	err := InTurn(ctx, "three", 4, 3, io.Discard, func(turn, side int) error {
		if order = append(order, side); turn == 3 {
			cancel()
		}
		return nil
	})
	if want := []int{0, 1, 2, 1, 2, 0, 2, 0, 1, 0}; !slices.Equal(order, want) || !errors.Is(err, context.Canceled) {
		t.Errorf("%v, %v; want %v", order, err, want)
	}
	broken := errors.New("no disk")
	if err := InTurn(t.Context(), "three", 4, 3, io.Discard, func(int, int) error { return broken }); err != broken {
		t.Errorf("%v", err)
	}
}

// Compare uses the ratios of the launches that both sides have.
func TestCompareUsesLaunchesThatBothHave(t *testing.T) {
	nan := math.NaN()
	c := Compare(stats.Samples{1, 50, nan, 4}, stats.Samples{2, 100, 7, nan})
	if c.Ratio != 0.5 || c.Interval.Low != 0.5 || c.Interval.High != 0.5 || c.Interval.Coverage != 0.5 {
		t.Errorf("%+v", c)
	}
	if c := Compare(stats.Samples{1}, nil); !math.IsNaN(float64(c.Ratio)) || Verdict(c.Interval) != "-" {
		t.Errorf("without a peer: %+v", c)
	}
}

// A side wins by its times, unless a launch of ddpbatch failed.
func TestRowWinsUnlessALaunchFailed(t *testing.T) {
	ours, theirs := NewRow("ours", 2), NewRow("theirs", 2)
	copy(ours.Times, []float64{1, 2})
	copy(theirs.Times, []float64{2, 4})
	theirs.Against(ours)
	if got := theirs.Verdict(ours); got != "win" || theirs.Ratio != 0.5 || !math.IsNaN(float64(ours.Ratio)) {
		t.Errorf("%s, %+v, ours %+v", got, theirs, ours)
	}
	ours.Times[1] = math.NaN()
	if got := theirs.Verdict(ours); got != "lose" {
		t.Errorf("a launch of ours failed, and the verdict is %q", got)
	}
}
