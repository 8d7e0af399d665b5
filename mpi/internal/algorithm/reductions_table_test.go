package algorithm

import (
	"math"
	"testing"
)

// checkReductionTable tests what all tables have in common.
func checkReductionTable[F any](t *testing.T, name string, entries []Entry[F]) {
	t.Helper()
	names, codes, canonical := map[string]bool{}, map[uint8]bool{0: true}, false
	for _, e := range entries {
		if names[e.Name] || codes[e.Code] {
			t.Errorf("%s: a second %q, or code %d", name, e.Name, e.Code)
		}
		names[e.Name], codes[e.Code] = true, true
		canonical = canonical || e.Canonical && e.Fits == nil
		for _, size := range []int{1, 2, 3, 4, 31, 32, 1000, 1024} {
			if e.Fits != nil && !e.Fits(size) {
				continue
			}
			m := Machine{Alpha: 1e-5, Beta: 1e-9, Gamma: 1e-10}
			before := 0.0
			for _, n := range []int{0, 8, 1 << 10, 1 << 20, 1 << 30} {
				cost := e.Cost(m, size, n)
				if cost < before || math.IsNaN(cost) || math.IsInf(cost, 0) || (size == 1) != (cost == 0) {
					t.Errorf("%s %s: %g s for %d ranks and %d bytes, and %g s for less", name, e.Name, cost, size, n, before)
				}
				before = cost
			}
		}
	}
	if !canonical {
		t.Errorf("%s has no canonical algorithm for every size", name)
	}
}

func TestReductionTables(t *testing.T) {
	checkReductionTable(t, "all-reduce", AllReduces())
	checkReductionTable(t, "reduce", Reduces())
	checkReductionTable(t, "reduce-scatter", ReduceScatters())
	checkReductionTable(t, "scan", Scans())
	checkReductionTable(t, "exscan", Exscans())
}
