package ddp

import (
	"math"

	"ddpbatch/trainer/internal/vec"
)

// What is this short, against the vector before or at all, is rounding.
const (
	dependent = 0x1p-20
	vanishing = 0x1p-100
)

// orthonormalize makes vectors of length n, one after another in v, orthonormal: Gram-Schmidt, repeated for a vector
// as long as a pass takes more than half of it away, as what is left would be mostly rounding ("twice is enough", Parlett, The Symmetric
// Eigenvalue Problem, 6.9). In place of one that vanishes, or depends on those before it in the precision of float32, comes what fresh
// writes; without fresh, zero.
//
// All machines get the same bits for the same v.
func orthonormalize(v []float32, n int, fresh func(k int, dst []float32)) {
	for k := range len(v) / n {
		x := v[k*n : (k+1)*n]
		length := project(x, v[:k*n])
		if length == 0 && fresh != nil {
			fresh(k, x)
			length = project(x, v[:k*n])
		}
		if length == 0 {
			clear(x)
			continue
		}
		for i := range x {
			x[i] = float32(float64(x[i]) / length)
		}
	}
}

// project removes from x what lies along orthonormal vectors, and returns the length of the rest; 0 where that is rounding.
func project(x, vectors []float32) float64 {
	n, length := len(x), math.Sqrt(vec.Dot(x, x))
	least := max(dependent*length, vanishing)
	for {
		before := length
		for y := vectors; len(y) > 0; y = y[n:] {
			vec.Axpy(x, -float32(vec.Dot(x, y[:n])), y[:n])
		}
		length = math.Sqrt(vec.Dot(x, x))
		if length < least {
			return 0
		}
		if !(length < before/2) { // NaN ends it, too
			return length
		}
	}
}
