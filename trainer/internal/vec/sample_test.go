package vec

import (
	"math"
	"math/rand/v2"
	"testing"
)

// implementations is every set that can run here: race builds test assembly too, though they do not use it.
func implementations() []*set { return append([]*set{&plain}, assembly()...) }

// special are the values at which loops differ first.
var special = []float32{
	0, float32(math.Copysign(0, -1)), 1, -1, 0.5, float32(math.NaN()), float32(-math.NaN()),
	float32(math.Inf(1)), float32(math.Inf(-1)), math.MaxFloat32, -math.MaxFloat32,
	math.SmallestNonzeroFloat32, -math.SmallestNonzeroFloat32, 0x1p-126, -0x1p-126, 0x1.fffffcp-127,
	65504, 65519.996, 65520, 0x1p-14, 0x1p-24, 0x1p-25, 0x1.000002p-25, 88.7, -87.3, -104, 1e-20, -1e20,
}

func newRand(t testing.TB) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %#x", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// normals are n numbers of standard normal distribution.
func normals(rng *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	return x
}

// anything is n numbers, of them some special, some of any bits, and most normal.
func anything(rng *rand.Rand, n int) []float32 {
	x := normals(rng, n)
	for i := range x {
		switch rng.IntN(8) {
		case 0:
			x[i] = special[rng.IntN(len(special))]
		case 1:
			x[i] = math.Float32frombits(rng.Uint32())
		}
	}
	return x
}

// zeros are n zeros of either sign.
func zeros(rng *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = math.Float32frombits(uint32(rng.IntN(2)) << 31)
	}
	return x
}

// guarded is n elements with others around them, at an address that is a multiple of 4 only. changed reports whether
// something was written to those around.
func guarded[T comparable](rng *rand.Rand, n int, mark T) (x []T, changed func() bool) {
	const margin = 32
	from := margin + rng.IntN(16)
	whole := make([]T, from+n+margin)
	for i := range whole {
		whole[i] = mark
	}
	return whole[from : from+n : from+n], func() bool {
		for i, v := range whole {
			if (i < from || i >= from+n) && v != mark {
				return true
			}
		}
		return false
	}
}

// same reports whether a and b have the same bits, or both are NaN.
func same(a, b float32) bool {
	return math.Float32bits(a) == math.Float32bits(b) || a != a && b != b
}

// within reports whether got is within tolerance of want, or both are NaN, or both the same infinity.
func within(got, want, tolerance float64) bool {
	return got == want || math.IsNaN(got) && math.IsNaN(want) || math.Abs(got-want) <= tolerance
}
