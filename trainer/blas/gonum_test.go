package blas

import (
	"math"
	"testing"

	"gonum.org/v1/gonum/blas"
)

// The documented difference from other libraries, so that a gonum that behaves otherwise is noticed.
func TestGonumLeavesOutZeros(t *testing.T) {
	for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(-1))} {
		for _, tA := range []blas.Transpose{blas.NoTrans, blas.Trans} {
			for _, tB := range []blas.Transpose{blas.NoTrans, blas.Trans} {
				product := func(a, b float32) float32 {
					c := []float32{0}
					Gonum{}.Sgemm(tA, tB, 1, 1, 1, 1, []float32{a}, 1, []float32{b}, 1, 0, c, 1)
					return c[0]
				}
				if c := product(bad, 0); c == c {
					t.Errorf("%c%c: %v times 0 is %v, want NaN", tA, tB, bad, c)
				}
				keeps := tA == blas.NoTrans && tB == blas.Trans
				if c := product(0, bad); keeps != (c != c) {
					t.Errorf("%c%c: 0 times %v is %v", tA, tB, bad, c)
				}
			}
		}
	}
}
