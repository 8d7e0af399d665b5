package model

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"ddpbatch/mpi/internal/algorithm"
)

func near(got, want, tolerance float64) bool { return math.Abs(got-want) <= tolerance*want }

// times draws any times that Usable accepts.
var times = rapid.Custom(func(t *rapid.T) (all Times) {
	for i := range all {
		all[i] = math.Pow(10, rapid.Float64Range(-9, 1).Draw(t, "log seconds"))
	}
	slices.Sort(all[:])
	return all
})

// If every byte takes the same time, At returns the same machine for a buffer of any length.
func TestUniformCostsAreThoseOfOneMachine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		power := func(what string, low, high float64) float64 {
			return math.Pow(10, rapid.Float64Range(low, high).Draw(t, "log "+what))
		}
		m := algorithm.Machine{
			Alpha: power("alpha", -8, -5), Beta: power("beta", -11, -7), Both: power("both", -11, -7), Gamma: power("gamma", -11, -7),
		}
		m.Both = max(m.Both, m.Beta)
		c := Uniform(m)
		n := rapid.IntRange(0, 1<<30).Draw(t, "bytes")
		got := c.At(n)
		// The shortest length is not 0: its bytes count as latency.
		if !near(got.Alpha, m.Alpha, 1e-9+8*apart*m.Both/m.Alpha) || !near(got.Beta, m.Beta, 2e-3) || !near(got.Both, m.Both, 2e-3) ||
			!near(got.Gamma, m.Gamma, 2e-3) || !c.Usable() {
			t.Fatalf("%d bytes: %+v, want %+v; usable: %v", n, got, m, c.Usable())
		}
	})
}

// A buffer as long as a timed one takes the timed one's time. Between two timed lengths, the time is interpolated linearly. Beyond the
// longest, it continues the line through the last two.
func TestTimesAreInLineBetweenLengths(t *testing.T) {
	c := Costs{
		Message:   Times{1e-6, 2e-6, 10e-6, 50e-6, 3150e-6},
		Exchange:  Times{1e-6, 3e-6, 20e-6, 100e-6, 6300e-6},
		Reduction: Times{0, 1e-6, 3e-6, 30e-6, 1890e-6},
	}
	for _, tt := range []struct {
		n                       int
		message, both, reducing float64 // microseconds, without the latency
	}{
		{0, 0, 0, 0},
		{4 << 10, 1, 2, 1},
		{34 << 10, 5, 10.5, 2}, // half way from 4 to 64 KiB
		{512 << 10, 49, 99, 30},
		{8448 << 10, 1599, 3199, 960}, // half way from 512 KiB to 16 MiB
		{31744 << 10, 3149 + 3000, 6299 + 6000, 1890 + 1800}, // 15 MiB more; from 512 KiB to 16 MiB it is 15.5
	} {
		m, n := c.At(tt.n), float64(tt.n)
		got := []float64{m.Beta * n * 1e6, m.Both * n * 1e6, m.Gamma * n * 1e6}
		for i, want := range []float64{tt.message, tt.both, tt.reducing} {
			if !near(got[i], want, 3e-3) { // 8 bytes of 4 KiB count as latency
				t.Errorf("%d bytes: %v, want %v", tt.n, got, want)
			}
		}
		if m.Alpha != apart*1e-6 {
			t.Errorf("%d bytes: a latency of %v", tt.n, m.Alpha)
		}
	}
}

// Whatever was timed, a longer buffer does not take less time, and no time is negative or NaN.
func TestLongerBuffersTakeNoLess(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := times.Draw(t, "times")
		a, b := rapid.IntRange(0, 1<<40).Draw(t, "bytes"), rapid.IntRange(0, 1<<40).Draw(t, "bytes")
		a, b = min(a, b), max(a, b)
		x, y := all.perByte(a)*float64(a), all.perByte(b)*float64(b)
		if !(x >= 0 && y >= x*(1-2e-3)) || math.IsInf(y, 0) { // at the shortest length there is a step, where its bytes begin to count
			t.Fatalf("%d bytes take %v, and %d bytes %v", a, x, b, y)
		}
	})
}

// With 10 percent of noise, and one sample in five delayed by a millisecond, the fitted times are right to 10 percent.
func TestFitToleratesNoise(t *testing.T) {
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 1))
		var samples Samples
		var want Times
		for i, n := range Lengths {
			want[i] = 5e-6 + float64(n)*1e-10
			for j := range 15 {
				s := want[i] * (1 + 0.1*(2*random.Float64()-1))
				if j%5 == 0 {
					s += 1e-3
				}
				samples[i] = append(samples[i], s)
			}
			random.Shuffle(len(samples[i]), func(a, b int) { samples[i][a], samples[i][b] = samples[i][b], samples[i][a] })
		}
		got := Fit(&samples)
		for i := range got {
			if !near(got[i], want[i], 0.1) {
				t.Errorf("seed %d: %v, want %v", seed, got, want)
			}
		}
	}
}

// Times do not decrease with the length, whatever the samples are. Lengths that were not timed are on the line through the last two.
func TestFitGrowsWithTheLength(t *testing.T) {
	for _, tt := range []struct {
		name    string
		samples Samples
		want    Times
	}{
		{"longer is faster", Samples{{2e-6}, {1e-6}, {3e-6}, {2e-6}, {4e-6}}, Times{2e-6, 2e-6, 3e-6, 3e-6, 4e-6}},
		{
			"two lengths", Samples{{8e-6}, {8e-6 + 4088e-9}},
			Times{8e-6, 8e-6 + 4088e-9, 8e-6 + 65528e-9, 8e-6 + 524280e-9, 8e-6 + 16777208e-9},
		},
		{"lower quartile", Samples{{5, 2, 3, 4, 1}, {9, 9, 3, 9}, {9}, {9}, {9}}, Times{2, 9, 9, 9, 9}},
	} {
		got := Fit(&tt.samples)
		for i := range got {
			if !near(got[i], tt.want[i], 1e-9) {
				t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
				break
			}
		}
	}
	samples := Samples{{2, 1}, {4, 3}}
	if Fit(&samples); samples[0][0] != 2 {
		t.Errorf("the samples are %v now", samples)
	}
}

func TestTimesThatMakeNoSenseAreNotUsable(t *testing.T) {
	good := Uniform(algorithm.Machine{Alpha: 1e-6, Beta: 1e-9, Gamma: 1e-10})
	if !good.Usable() {
		t.Error("those of a machine are not")
	}
	for name, spoil := range map[string]func(c *Costs){
		"no number":         func(c *Costs) { c.Message[3] = math.NaN() },
		"infinite":          func(c *Costs) { c.Exchange[4] = math.Inf(1) },
		"below 0":           func(c *Costs) { c.Reduction[0] = -1e-9 },
		"longer is faster":  func(c *Costs) { c.Message[2] = c.Message[1] / 2 },
		"no latency":        func(c *Costs) { c.Exchange = Times{} },
		"an hour":           func(c *Costs) { c.Exchange[4] = 3600 },
		"nothing was timed": func(c *Costs) { c.Message = Fit(&Samples{}) },
	} {
		c := good
		if spoil(&c); c.Usable() {
			t.Errorf("%s: %+v", name, c)
		}
	}
}
