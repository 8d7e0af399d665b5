package model

import (
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"ddpbatch/mpi/internal/algorithm"
)

type entry = algorithm.Entry[func()]

// fixed returns an algorithm with a fixed cost.
func fixed(name string, cost float64) entry {
	return entry{Traits: algorithm.Traits{Name: name, Canonical: true, Cost: func(algorithm.Machine, int, int) float64 { return cost }}}
}

// Choose takes the cheapest of the algorithms that may be used, and the first of equally cheap ones.
func TestChooseIsArgmin(t *testing.T) {
	costs := rapid.OneOf(rapid.Float64Range(0, 10), rapid.SampledFrom([]float64{0, 1, 2, math.Inf(1), math.NaN(), -1, math.Inf(-1)}))
	rapid.Check(t, func(t *rapid.T) {
		size, canonicalOnly := rapid.IntRange(1, 9).Draw(t, "size"), rapid.Bool().Draw(t, "canonical only")
		var entries []entry
		for i := range rapid.IntRange(0, 12).Draw(t, "entries") {
			e := fixed(string(rune('a'+i)), costs.Draw(t, "cost"))
			e.Canonical = rapid.Bool().Draw(t, "canonical")
			if only := rapid.IntRange(0, 9).Draw(t, "only size"); only > 0 {
				e.Fits = func(size int) bool { return size == only }
			}
			entries = append(entries, e)
		}
		got := Choose(entries, algorithm.Machine{}, size, 0, canonicalOnly)
		want, chosen, least := "", "", math.NaN()
		for _, p := range Predict(algorithm.TraitsOf(entries), algorithm.Machine{}, size, 0, canonicalOnly) {
			if p.Refusal == "" && !(p.Seconds >= least) {
				want, least = p.Name, p.Seconds
			}
			if p.Chosen {
				chosen += p.Name
			}
		}
		if chosen != want {
			t.Fatalf("predicted that %q is chosen, want %q at %v", chosen, want, least)
		}
		if got.Name != want {
			t.Fatalf("chose %q, want %q at %v", got.Name, want, least)
		}
	})
}

// Costs that differ only by rounding are equal.
func TestChooseTakesTheFirstOfEqualCosts(t *testing.T) {
	entries := []entry{fixed("first", 0.3), fixed("second", math.Nextafter(0.3, 0)), fixed("third", 0.3)}
	if got := Choose(entries, algorithm.Machine{}, 2, 0, true); got.Name != "first" {
		t.Errorf("chose %q", got.Name)
	}
	entries = append(entries, fixed("fourth", 0.3*(1-1e-6)))
	if got := Choose(entries, algorithm.Machine{}, 2, 0, true); got.Name != "fourth" {
		t.Errorf("chose %q", got.Name)
	}
}

// On a network of 10 us and 2 GB/s, the choices agree with the papers: few rounds for short messages, few bytes for long ones.
func TestChooseOnANetworkAgreesWithThePapers(t *testing.T) {
	m := algorithm.Machine{Alpha: 10e-6, Beta: 0.5e-9, Gamma: 0.1e-9}
	check := func(what, got, want string) {
		t.Helper()
		if !strings.Contains(" "+want+" ", " "+got+" ") {
			t.Errorf("%s: chose %s, want %s", what, got, want)
		}
	}
	broadcast := func(size, n int) string { return Choose(algorithm.Broadcasts(), m, size, n, true).Name }
	check("broadcast of 4 bytes to 64", broadcast(64, 4), "binomial")
	check("broadcast of 64 MiB to 4", broadcast(4, 64<<20), "chain double_tree")
	check("broadcast of 64 MiB to 512", broadcast(512, 64<<20), "double_tree")
	check("all-gather of 512 short blocks", Choose(algorithm.AllGathers(), m, 512, 512*4, true).Name, "recursive_doubling")
	check("all-gather of 500 short blocks", Choose(algorithm.AllGathers(), m, 500, 500*4, true).Name, "bruck")
	check("all-to-all of 256 short blocks", Choose(algorithm.AllToAlls(), m, 256, 256*4, true).Name, "bruck")
	check("all-to-all of 256 long blocks", Choose(algorithm.AllToAlls(), m, 256, 256<<16, true).Name, "direct")
	check("gather to 4", Choose(algorithm.Gathers(), m, 4, 16, true).Name, "linear")
	check("gather to 256", Choose(algorithm.Gathers(), m, 256, 256*4, true).Name, "binomial")
	check("barrier", Choose(algorithm.Barriers(), m, 100, 0, true).Name, "dissemination")
}

// No algorithm is predicted to take less time for twice the bytes, and no time is NaN or negative, on machines with caches and without. The
// time of segments may fall by less than a tenth. It uses the time per byte of the whole buffer, which falls if the first pages of a
// message take longer.
func TestPredictionsGrowWithTheLength(t *testing.T) {
	const us = 1e-6
	tables := map[string][]algorithm.Traits{
		"all-reduce": algorithm.TraitsOf(algorithm.AllReduces()), "broadcast": algorithm.TraitsOf(algorithm.Broadcasts()),
		"reduce": algorithm.TraitsOf(algorithm.Reduces()), "all-gather": algorithm.TraitsOf(algorithm.AllGathers()),
		"gather": algorithm.TraitsOf(algorithm.Gathers()), "scatter": algorithm.TraitsOf(algorithm.Scatters()),
		"reduce-scatter": algorithm.TraitsOf(algorithm.ReduceScatters()), "all-to-all": algorithm.TraitsOf(algorithm.AllToAlls()),
		"scan": algorithm.TraitsOf(algorithm.Scans()), "exscan": algorithm.TraitsOf(algorithm.Exscans()),
		"barrier": algorithm.TraitsOf(algorithm.Barriers()),
	}
	for machine, costs := range map[string]Costs{
		"network": Uniform(algorithm.Machine{Alpha: 10 * us, Beta: 0.5e-9, Gamma: 0.1e-9}),
		"cores that copy, and have caches": {
			Message:   Times{5 * us, 6 * us, 10 * us, 50 * us, 4000 * us},
			Exchange:  Times{6 * us, 8 * us, 16 * us, 90 * us, 9000 * us},
			Reduction: Times{0, 0.2 * us, 3 * us, 30 * us, 3000 * us},
		},
	} {
		for collective, table := range tables {
			for _, size := range []int{2, 3, 4, 5, 8, 31, 32, 512} {
				before := make([]float64, len(table))
				for n := 1; n <= 1<<32; n *= 2 {
					for i, p := range Predict(table, costs.At(n), size, n, false) {
						if p.Refusal == "" && !(p.Seconds > 0 && p.Seconds >= 0.9*before[i] && p.Seconds < 1e6) {
							t.Errorf("%s %s on a %s, %d ranks: %v s for %d bytes, and %v s for half of that",
								collective, p.Name, machine, size, p.Seconds, n, before[i])
						}
						before[i] = p.Seconds
					}
				}
			}
		}
	}
}

func TestNamedAlgorithmIsFoundOrRefused(t *testing.T) {
	ring, halving := fixed("ring", 1), fixed("halving", 1)
	ring.Canonical, halving.Fits = false, func(size int) bool { return size == 4 }
	entries := []entry{ring, halving, fixed("star", 1)}
	for _, tt := range []struct {
		name          string
		size          int
		canonicalOnly bool
		want          string // of the error
	}{
		{"ring", 3, false, ""},
		{"halving", 4, true, ""},
		{"Ring", 4, false, `algorithm "Ring" is not one of this collective's; possible here: ring, halving, star`},
		{"tree", 3, true, `algorithm "tree" is not one of this collective's; possible here: star`},
		{"ring", 4, true, `algorithm "ring" does not combine in canonical order: it needs deterministic = false, and an operation that ` +
			`commutes; possible here: halving, star`},
		{"halving", 3, false, `algorithm "halving" does not work for 3 ranks; possible here: ring, star`},
	} {
		e, err := Named(entries, tt.name, tt.size, tt.canonicalOnly)
		switch {
		case tt.want == "" && (err != nil || e.Name != tt.name):
			t.Errorf("%q, %d ranks: %q, %v", tt.name, tt.size, e.Name, err)
		case tt.want != "" && (err == nil || err.Error() != tt.want):
			t.Errorf("%q, %d ranks: %v, want %s", tt.name, tt.size, err, tt.want)
		}
	}
}

func TestPredictSaysCostOrRefusal(t *testing.T) {
	halving := algorithm.Traits{Name: "halving", Fits: func(size int) bool { return size == 4 },
		Cost: func(m algorithm.Machine, size, n int) float64 { return float64(size)*m.Alpha + float64(n)*m.Beta }}
	all := []algorithm.Traits{halving, fixed("star", 7).Traits}
	m := algorithm.Machine{Alpha: 1, Beta: 2}
	got := Predict(all, m, 4, 3, true)
	if got[0].Seconds != 10 || !strings.Contains(got[0].Refusal, "canonical") || got[1] != (Prediction{"star", 7, "", true}) {
		t.Errorf("%+v", got)
	}
	if got := Predict(all, m, 1, 3, true)[1]; got.Seconds != 0 {
		t.Errorf("a rank alone: %+v", got)
	}
	if got := Predict(all, m, 3, 3, false)[0]; got != (Prediction{"halving", 0, "does not work for 3 ranks", false}) {
		t.Errorf("%+v", got)
	}
}

func TestChooseDoesNotAllocate(t *testing.T) { // without the race detector
	entries, m := algorithm.AllReduces(), algorithm.Machine{Alpha: 1e-6, Beta: 1e-9, Gamma: 1e-10}
	var name string
	if n := testing.AllocsPerRun(100, func() { name = Choose(entries, m, 7, 1000, true).Name }); n != 0 || name == "" {
		t.Errorf("%v allocations, chose %q", n, name)
	}
}

func BenchmarkChoose(b *testing.B) {
	entries, m := algorithm.AllReduces(), algorithm.Machine{Alpha: 1e-6, Beta: 1e-9, Gamma: 1e-10}
	b.ReportAllocs()
	for b.Loop() {
		Choose(entries, m, 8, 1<<20, true)
	}
}

func BenchmarkTable(b *testing.B) {
	m := algorithm.Machine{Alpha: 1e-6, Beta: 1e-9, Gamma: 1e-10}
	b.ReportAllocs()
	for b.Loop() {
		Choose(algorithm.AllReduces(), m, 8, 1<<20, true)
	}
}
