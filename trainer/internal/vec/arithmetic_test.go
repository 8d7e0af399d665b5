package vec

import (
	"math"
	"math/big"
	"testing"
)

// These tests compare the plain loops with the definitions in float64. Other tests compare assembly with the plain loops.

// eps is the largest relative error of rounding to float32.
const eps = 0x1p-24

func TestArithmeticRoundsOnce(t *testing.T) {
	rng := newRand(t)
	x, y := normals(rng, 50), normals(rng, 50)
	dst := make([]float32, 50)
	check := func(name string, want func(i int) float64) {
		t.Helper()
		for i, got := range dst {
			if w := want(i); got != float32(w) { // one rounding of a result that is exact in float64
				t.Fatalf("%s: %v, want %v", name, got, w)
			}
		}
	}
	sum := func(i int) float64 { return float64(x[i]) + float64(y[i]) }
	copy(dst, x)
	Add(dst, y)
	check("Add", sum)
	AddTo(dst, x, y)
	check("AddTo", sum)
	Mul(dst, x, y)
	check("Mul", func(i int) float64 { return float64(x[i]) * float64(y[i]) })
	copy(dst, x)
	Scale(dst, 0.3)
	check("Scale", func(i int) float64 { return float64(x[i]) * float64(float32(0.3)) })
	copy(dst, x)
	Axpy(dst, 0.3, y)
	check("Axpy", func(i int) float64 { return float64(x[i]) + float64(float32(float64(y[i])*float64(float32(0.3)))) })
}

func TestSumRowsAddsEveryRow(t *testing.T) {
	for _, rows := range []int{0, 1, 3, 4, 5, 9} {
		const cols = 19
		rng := newRand(t)
		m, row := normals(rng, rows*cols), normals(rng, cols)
		total := append([]float32(nil), row...)
		SumRows(total, m)
		for j := range total {
			want := row[j]
			for i := range rows {
				want += m[i*cols+j]
			}
			if total[j] != want {
				t.Fatalf("%d rows: column %d: %v, want %v", rows, j, total[j], want)
			}
		}
	}
}

// TestSumsAreNearTheExactOnes compares with exact sums. Each of the n additions in float64 loses at most 2^-53 of the sum of
// magnitudes.
func TestSumsAreNearTheExactOnes(t *testing.T) {
	for _, s := range implementations() {
		rng := newRand(t)
		lengths := []int{127, 1000, 5001}
		for n := range 71 {
			lengths = append(lengths, n)
		}
		for _, n := range lengths {
			x, _ := guarded[float32](rng, n, float32(math.NaN()))
			y, _ := guarded[float32](rng, n, float32(math.NaN()))
			copy(x, normals(rng, n))
			copy(y, normals(rng, n))
			var total, dots big.Float
			total.SetPrec(500)
			dots.SetPrec(500)
			var magnitude float64
			for i := range x {
				x[i] = float32(math.Ldexp(float64(x[i]), rng.IntN(40)))
				total.Add(&total, big.NewFloat(float64(x[i])))
				dots.Add(&dots, big.NewFloat(float64(x[i])*float64(y[i])))
				magnitude += math.Abs(float64(x[i])) * (1 + math.Abs(float64(y[i])))
			}
			tolerance := float64(n) * 0x1p-53 * magnitude
			if want, _ := total.Float64(); !within(s.sum(x), want, tolerance) {
				t.Fatalf("%s: sum of %d: %v, want %v", s.name, n, s.sum(x), want)
			}
			if want, _ := dots.Float64(); !within(s.dot(x, y), want, tolerance) {
				t.Fatalf("%s: dot of %d: %v, want %v", s.name, n, s.dot(x, y), want)
			}
		}
	}
}

// TestSumsInOneOrder checks that every set adds in the same order, so that ranks on CPUs of different kinds compute the same
// norm. Element i is added to sum i mod 8. Then sum j+4 is added to j, j+2 to j, and j+1 to j.
func TestSumsInOneOrder(t *testing.T) {
	inOrder := func(terms []float64) float64 {
		var s [8]float64
		for i, v := range terms {
			s[i%8] += v
		}
		for half := 4; half > 0; half /= 2 {
			for j := range half {
				s[j] += s[j+half]
			}
		}
		return s[0]
	}
	for _, s := range implementations() {
		rng := newRand(t)
		lengths := []int{1000, 4099}
		for n := range 71 {
			lengths = append(lengths, n, n)
		}
		for _, n := range lengths {
			x, _ := guarded[float32](rng, n, float32(math.NaN()))
			y, _ := guarded[float32](rng, n, float32(math.NaN()))
			values, products := make([]float64, n), make([]float64, n)
			for i := range x { // sizes are far apart, so that every other order rounds differently
				x[i] = float32(math.Ldexp(rng.NormFloat64(), rng.IntN(60)-30))
				y[i] = float32(rng.NormFloat64())
				values[i], products[i] = float64(x[i]), float64(x[i])*float64(y[i])
			}
			if got, want := s.sum(x), inOrder(values); math.Float64bits(got) != math.Float64bits(want) {
				t.Fatalf("%s: sum of %d: %v, want %v", s.name, n, got, want)
			}
			if got, want := s.dot(x, y), inOrder(products); math.Float64bits(got) != math.Float64bits(want) {
				t.Fatalf("%s: dot of %d: %v, want %v", s.name, n, got, want)
			}
		}
	}
}

// TestSumsOfHugeValuesDoNotOverflow checks that squares do not overflow float32, and that infinities and NaN are kept.
func TestSumsOfHugeValuesDoNotOverflow(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, s := range implementations() {
		for n := 1; n < 40; n++ {
			x := make([]float32, n)
			x[n-1] = -math.MaxFloat32
			if got, want := s.dot(x, x), float64(math.MaxFloat32)*math.MaxFloat32; got != want {
				t.Fatalf("%s: %v, want %v", s.name, got, want)
			}
			x[n-1] = inf
			if got := s.sum(x); !math.IsInf(got, 1) {
				t.Fatalf("%s: sum with Inf: %v", s.name, got)
			}
			x[n/2] = nan
			if got, gotDot := s.sum(x), s.dot(x, x); !math.IsNaN(got) || !math.IsNaN(gotDot) {
				t.Fatalf("%s: sums with NaN: %v, %v", s.name, got, gotDot)
			}
		}
	}
}

// TestMaxAndFiniteSeeEveryPlace puts each special value at every place of rows of all lengths.
func TestMaxAndFiniteSeeEveryPlace(t *testing.T) {
	for _, s := range implementations() {
		rng := newRand(t)
		if got := s.max(nil); !math.IsInf(float64(got), -1) {
			t.Errorf("%s: max of nothing is %v", s.name, got)
		}
		if !s.finite(nil) {
			t.Errorf("%s: nothing is not finite", s.name)
		}
		for n := 1; n < 71; n++ {
			x, _ := guarded[float32](rng, n, float32(math.NaN())) // the NaN around x must not be read
			for i, v := range normals(rng, n) {
				x[i] = v - 10 // below the 0 with which kernels might fill up vectors
			}
			for i := range x {
				old := x[i]
				for _, v := range special {
					x[i] = v
					want := math.Inf(-1)
					for _, u := range x {
						want = math.Max(want, float64(u))
					}
					if got := s.max(x); float64(got) != want && !(got != got && math.IsNaN(want)) {
						t.Fatalf("%s: max with %v at %d of %d: %v, want %v", s.name, v, i, n, got, want)
					}
					if got, want := s.finite(x), !math.IsNaN(float64(v)) && !math.IsInf(float64(v), 0); got != want {
						t.Fatalf("%s: finite with %v at %d of %d: %v", s.name, v, i, n, got)
					}
				}
				x[i] = old
			}
		}
	}
}
