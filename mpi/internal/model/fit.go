package model

import (
	"cmp"
	"math"
	"slices"

	"ddpbatch/mpi/internal/algorithm"
)

// Sample is the time of one message: half of that of a ping-pong.
type Sample struct {
	Bytes   int
	Seconds float64
}

// Fit finds the latency and the time of a byte that explain the samples best, neither of them below 0. It leaves Gamma 0.
// ok is false where the times make no sense: there is none, or they are too far apart.
//
// It takes the median of the samples of one length, which a few interruptions do not move, and minimises the
// squares of relative errors: so that short messages count as much as long ones, whose times differ by far more. There must
// be samples of two lengths.
func Fit(samples []Sample) (m algorithm.Machine, ok bool) {
	// With u = 1/t and v = b/t, the sum of (alpha u + beta v - 1)^2 is to be least.
	var u, v, uu, uv, vv float64
	for _, s := range medians(samples) {
		su, sv := 1/s.Seconds, float64(s.Bytes)/s.Seconds
		u, v, uu, uv, vv = u+su, v+sv, uu+su*su, uv+su*sv, vv+sv*sv
	}
	det := uu*vv - uv*uv
	m = algorithm.Machine{Alpha: (u*vv - v*uv) / det, Beta: (v*uu - u*uv) / det}
	switch { // the least that is not negative lies where the one that is negative is 0
	case m.Alpha < 0:
		m = algorithm.Machine{Beta: v / vv}
	case m.Beta < 0:
		m = algorithm.Machine{Alpha: u / uu}
	}
	return m, finite(m.Alpha) && finite(m.Beta) && m.Alpha+m.Beta > 0 // 0 and less are noise, of samples of one length
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// medians has one sample for each length, by length, of the median of its times.
func medians(samples []Sample) []Sample {
	sorted := slices.SortedFunc(slices.Values(samples), func(a, b Sample) int {
		return cmp.Or(cmp.Compare(a.Bytes, b.Bytes), cmp.Compare(a.Seconds, b.Seconds))
	})
	var typical []Sample
	for len(sorted) > 0 {
		n := 1
		for n < len(sorted) && sorted[n].Bytes == sorted[0].Bytes {
			n++
		}
		typical = append(typical, Sample{sorted[0].Bytes, (sorted[(n-1)/2].Seconds + sorted[n/2].Seconds) / 2})
		sorted = sorted[n:]
	}
	return typical
}
