package main

import (
	"io"
	"math"
	"slices"
	"testing"

	pytorch "ddpbatch/internal/testkit/torch"
	"ddpbatch/scripts/bench/internal/stats"
)

// TestSidesTrainTheSame holds the losses that bench-train compares against each other, as it reads them, after some epochs of models whose
// initial values are PyTorch's own. They differ by rounding alone.
func TestSidesTrainTheSame(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: PyTorch trains, too")
	}
	pytorch.Python(t)   // or skip
	t.Chdir("../../..") // bench-train builds the program there
	dir := t.TempDir()
	sides, err := prepare(t.Context(), dir, options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := writeData(dir, ""); err != nil {
		t.Fatal(err)
	}
	for name, ranks := range map[string]int{"dense": 1, "mlp": 2} {
		m := modelsOf([]string{name})[0]
		m.times, m.warmUp = 1, 20
		for m.epochs = 1; m.steps(1)%10 > 0; m.epochs++ {
		}
		r, err := measure(t.Context(), options{launches: 1}, setting{m, ranks}, sides, dir, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(r.Loss[:], func(s stats.Samples) bool { return len(s) != 1 || math.IsNaN(s[0]) }) || len(r.Faults) > 0 {
			t.Errorf("%s, %d ranks: losses %v, faults %q", m.name, ranks, r.Loss, r.Faults)
		} else if ours, theirs := r.Loss[own][0], r.Loss[peer][0]; math.Abs(ours-theirs) > 1e-3*theirs {
			t.Errorf("%s, %d ranks: our loss is %v, PyTorch's %v", m.name, ranks, ours, theirs)
		}
	}
}
