package ddp

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"ddpbatch/trainer/internal/vec"
)

// Whatever vectors there are, those that do not vanish are orthonormal.
func TestOrthonormalize(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 40).Draw(t, "n")
		count := rapid.IntRange(1, n).Draw(t, "count")
		independent := rapid.IntRange(0, count).Draw(t, "independent") // the others are sums of these
		exponent := rapid.IntRange(-90, 90).Draw(t, "exponent")
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		v := make([]float32, n*count)
		for k := range count {
			x := v[k*n : (k+1)*n]
			for i := range x {
				if k < independent {
					x[i] = float32(math.Ldexp(r.NormFloat64(), exponent))
				}
			}
			for j := 0; k >= independent && j < independent; j++ {
				for i := range x {
					x[i] += float32(j+1) * v[j*n+i]
				}
			}
		}
		fresh := rapid.Bool().Draw(t, "fresh")
		if fresh {
			orthonormalize(v, n, func(_ int, dst []float32) {
				for i := range dst {
					dst[i] = float32(r.NormFloat64())
				}
			})
		} else {
			orthonormalize(v, n, nil)
		}
		for k := range count {
			x := v[k*n : (k+1)*n]
			length := vec.Dot(x, x)
			if length == 0 && !fresh && k >= independent {
				continue
			}
			// n values near 1/sqrt(n), rounded at 2^-24; twice that for the last projection.
			if math.Abs(length-1) > 1e-6 {
				t.Fatalf("vector %d of %d: squared length %v", k, count, length)
			}
			for j := range k {
				if d := vec.Dot(x, v[j*n:(j+1)*n]); math.Abs(d) > 3e-6 {
					t.Fatalf("vectors %d and %d: product %v", j, k, d)
				}
			}
		}
	})
}

func TestOrthonormalizeNaN(t *testing.T) {
	for _, bad := range []float64{math.NaN(), math.Inf(1)} {
		v := []float32{1, 2, float32(bad), 4, 5, 6}
		orthonormalize(v, 3, nil) // ends
		if s := vec.Dot(v, v); s == s {
			t.Errorf("%v is gone: %v", bad, v)
		}
	}
}
