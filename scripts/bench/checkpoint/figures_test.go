package main

import (
	"io"
	"strings"
	"testing"

	"ddpbatch/scripts/bench/internal/paired"
)

// Each figure has a sample for each launch or pair, and times are positive.
func TestFiguresAreThereForEachLaunch(t *testing.T) {
	const launches = 2
	list, err := paired.MeasureFigures(t.Context(), experiments(newTrainingState(12<<20), t.TempDir(), launches), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range list {
		want := checksumPairs
		if strings.HasPrefix(f.What, "commit") || strings.HasPrefix(f.What, "latest") || strings.HasPrefix(f.What, "peak memory") {
			want = launches
		}
		if len(f.Samples) != want || f.What == "" || f.Unit == "" {
			t.Errorf("%+v, want %d samples", f, want)
		}
		for _, sample := range f.Samples {
			if f.Unit == "ms" && sample <= 0 || sample <= -100 {
				t.Errorf("%s: %v %s", f.What, sample, f.Unit)
			}
		}
	}
}
