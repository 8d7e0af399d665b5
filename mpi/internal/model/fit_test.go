package model

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"ddpbatch/mpi/internal/algorithm"
)

var lengths = []int{8, 4 << 10, 256 << 10}

func timed(m algorithm.Machine, bytes int) float64 { return m.Alpha + float64(bytes)*m.Beta }

func near(got, want, tolerance float64) bool { return math.Abs(got-want) <= tolerance*want }

// Times that the model explains give the machine back, whatever its speed.
func TestFitFindsTheExactMachine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := algorithm.Machine{
			Alpha: math.Pow(10, rapid.Float64Range(-8, -2).Draw(t, "log alpha")),
			Beta:  math.Pow(10, rapid.Float64Range(-11, -7).Draw(t, "log beta")),
		}
		var samples []Sample
		for _, n := range lengths {
			samples = append(samples, Sample{n, timed(m, n)})
		}
		got, ok := Fit(samples)
		// What one term adds to the times must be there to be found: doubles have 16 digits.
		if !ok || !near(got.Alpha, m.Alpha, 1e-6) || !near(got.Beta, m.Beta, 1e-6) || got.Gamma != 0 {
			t.Fatalf("%+v, %v; want %+v", got, ok, m)
		}
	})
}

// With 10 percent of noise, and one message in five held up for a millisecond, both are still found to 15 percent.
func TestFitToleratesNoise(t *testing.T) {
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 1))
		m := algorithm.Machine{Alpha: 5e-6 * (1 + random.Float64()), Beta: 1e-10 * (1 + random.Float64())}
		var samples []Sample
		for _, n := range lengths {
			for i := range 15 {
				s := timed(m, n) * (1 + 0.1*(2*random.Float64()-1))
				if i%5 == 0 {
					s += 1e-3
				}
				samples = append(samples, Sample{n, s})
			}
		}
		random.Shuffle(len(samples), func(i, j int) { samples[i], samples[j] = samples[j], samples[i] })
		got, ok := Fit(samples)
		if !ok || !near(got.Alpha, m.Alpha, 0.15) || !near(got.Beta, m.Beta, 0.15) {
			t.Errorf("seed %d: %+v, %v; want %+v", seed, got, ok, m)
		}
	}
}

// Whatever the times are, costs are not negative.
func TestFitIsNeverNegative(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var samples []Sample
		for range rapid.IntRange(2, 10).Draw(t, "samples") {
			samples = append(samples, Sample{
				rapid.IntRange(0, 1<<40).Draw(t, "bytes"),
				math.Pow(10, rapid.Float64Range(-9, 3).Draw(t, "log seconds")),
			})
		}
		got, ok := Fit(samples)
		if ok && !(got.Alpha >= 0 && got.Beta >= 0 && got.Alpha+got.Beta > 0) {
			t.Fatalf("%+v", got)
		}
	})
	for _, tt := range []struct {
		name    string
		samples []Sample
		want    algorithm.Machine
	}{
		{"longer is faster", []Sample{{8, 2e-6}, {1024, 1e-6}}, algorithm.Machine{Alpha: 1.2e-6}},
		{"more than in proportion", []Sample{{100, 1e-6}, {200, 4e-6}}, algorithm.Machine{Beta: 1.2e-8}},
	} {
		got, ok := Fit(tt.samples)
		if !ok || !near(got.Alpha, tt.want.Alpha, 1e-9) || !near(got.Beta, tt.want.Beta, 1e-9) {
			t.Errorf("%s: %+v, %v; want %+v", tt.name, got, ok, tt.want)
		}
	}
}

func TestFitRefuses(t *testing.T) {
	for _, samples := range [][]Sample{nil, {{8, 1e-6}, {16, 0}}, {{16, math.NaN()}, {8, 1e-6}}, {{0, 1e-300}, {1, 1e300}}} {
		if m, ok := Fit(samples); ok {
			t.Errorf("%v: %+v", samples, m)
		}
	}
}

// Fit leaves the samples as they are.
func TestFitKeepsSamples(t *testing.T) {
	samples := []Sample{{100, 2}, {1, 1}, {100, 1}}
	if _, ok := Fit(samples); !ok {
		t.Fatal("they make no sense")
	}
	if want := (Sample{100, 2}); samples[0] != want {
		t.Errorf("the first is %+v now", samples[0])
	}
}
