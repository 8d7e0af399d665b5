package main

import (
	"bytes"
	"errors"
	"io"
	"math"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"

	pytorch "ddpbatch/internal/testkit/torch"
	"ddpbatch/scripts/bench/internal/command"
	"ddpbatch/scripts/bench/internal/processes"
	"ddpbatch/scripts/bench/internal/stats"
)

// filled returns a row of launches with the given milliseconds per step. A value below 0 means that the launch failed.
func filled(ours, theirs []float64) modelRow {
	r := newModelRow(setting{models[1], 2}, len(ours))
	for turn := range ours {
		for side, ms := range []float64{ours[turn], theirs[turn]} {
			var err error
			if ms < 0 {
				err = errors.New("no such device")
			}
			r.add(turn, side, []string{"ddpbatch", "PyTorch"}[side],
				result{StepMS: ms, PeakMiB: 50 * ms, Loss: 0.5, Parameters: 535_818, Exposed: 0.05}, err)
		}
	}
	r.compare()
	return r
}

func TestVerdictComparesTimes(t *testing.T) {
	for _, tt := range []struct {
		name         string
		ours, theirs []float64
		verdict      string
		ratio        string
	}{
		{"faster", []float64{1, 1, 1}, []float64{2, 2, 2}, "win", "2.00"},
		{"slower", []float64{4, 4, 4}, []float64{2, 2, 2}, "lose", "0.50"},
		{"now and then", []float64{1, 4, 4}, []float64{2, 2, 8}, "even", "2.00"},
		// launch 2 was slow for both: the ratio is computed per launch, not from medians
		{"paired", []float64{1, 50, 3}, []float64{2, 100, 6}, "win", "2.00"},
		{"ours failed", []float64{-1, -1, -1}, []float64{2, 2, 2}, "lose", "-"},
		{"one launch of ours failed", []float64{1, -1, 1}, []float64{2, 2, 2}, "lose", "2.00"},
		{"theirs was there once", []float64{1, 1, 1}, []float64{2, -1, -1}, "-", "2.00"},
		{"theirs was there twice", []float64{1, 1, 1}, []float64{2, -1, 3}, "win", "2.50"},
		{"theirs failed", []float64{1, 1, 1}, []float64{-1, -1, -1}, "-", "-"},
	} {
		r := filled(tt.ours, tt.theirs)
		if cells := r.cells(); r.verdict() != tt.verdict || cells[3] != tt.ratio {
			t.Errorf("%s: %s, %s; want %s, %s", tt.name, r.verdict(), cells[3], tt.verdict, tt.ratio)
		}
	}
}

// Sides that train different models are not compared.
func TestDifferentParametersAreAFault(t *testing.T) {
	r := newModelRow(setting{models[1], 1}, 1)
	r.add(0, peer, "PyTorch", result{StepMS: 1, Parameters: 21}, nil)
	r.compare()
	if len(r.Faults) != 1 || !strings.Contains(r.Faults[0], "a model of 21 parameters, want 535818") {
		t.Errorf("faults %q", r.Faults)
	}
}

// Sides whose losses differ are not compared either.
func TestDifferentLossesAreAFault(t *testing.T) {
	r := newModelRow(setting{models[1], 2}, 1)
	r.add(0, own, "ddpbatch", result{StepMS: 1, Loss: 2.3, Parameters: 535_818}, nil)
	r.add(0, peer, "PyTorch", result{StepMS: 2, Loss: 0.13, Parameters: 535_818}, nil)
	r.compare()
	if r.verdict() != "lose" || len(r.Faults) != 1 || !strings.Contains(r.Faults[0], "a loss of 2.3000 and one of 0.1300") {
		t.Errorf("%s, faults %q", r.verdict(), r.Faults)
	}
}

func TestPrintTableShowsEachModel(t *testing.T) {
	var text bytes.Buffer
	printTable(&text, 2, []modelRow{filled([]float64{2, -1}, []float64{4, 8})})
	want := `
### 2 ranks of 1 thread

|              model | samples/s | PyTorch | ratio | interval | verdict | ms a step | PyTorch | peak MiB | PyTorch | ratio |   loss | PyTorch | waits for communication |
| -----------------: | --------: | ------: | ----: | -------: | ------: | --------: | ------: | -------: | ------: | ----: | -----: | ------: | ----------------------: |
| MLP 784-512-256-10 |     64000 |   21333 |  2.00 |        - |    lose |         2 |       6 |      100 |     300 |  0.50 | 0.5000 |  0.5000 |                   5.0 % |

- ddpbatch, launch 2 of mlp, 2 x 1: no such device
`
	if text.String() != want {
		t.Errorf("%s\nwant\n%s", text.String(), want)
	}
}

// The peak of a child does not include an earlier peak of this process.
func TestPeakForgetsTheParents(t *testing.T) {
	much := make([]byte, 256<<20)
	for i := 0; i < len(much); i += 4096 {
		much[i] = 1
	}
	runtime.KeepAlive(much)
	much = nil
	if err := processes.ForgetPeak(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	// The present memory of this process counts: the race detector does not release all of its own.
	m, err := processes.MemoryOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if got, own := peak([]*exec.Cmd{cmd}), float64(m.Resident)/(1<<20); got <= 0 || got > own+64 {
		t.Errorf("a peak of %v MiB, started from a process of %v MiB", got, own)
	}
}

// TestSidesTrainTheSame compares the losses of both sides, as bench-train reads them, after some epochs of models whose initial values come
// from PyTorch. They differ only by rounding.
func TestSidesTrainTheSame(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: PyTorch trains, too")
	}
	pytorch.Python(t)   // or skips
	t.Chdir("../../..") // bench-train builds the program there
	dir := t.TempDir()
	sides, err := prepare(t.Context(), dir, options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := writeData(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	for name, ranks := range map[string]int{"dense": 1, "mlp": 2} {
		m := modelsOf([]string{name})[0]
		m.times, m.warmUp = 1, 20
		for m.epochs = 1; m.steps(1)%10 > 0; m.epochs++ {
		}
		r, err := measure(t.Context(), options{Common: command.Common{Launches: 1}}, setting{m, ranks}, sides, dir, io.Discard)
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
