package vec

import (
	"math"
	"testing"
)

// curves are the kernels that approximate: f in float64 is what they should be, and allowed the error that their
// documentation states, 2^-149 more where results are subnormal.
var curves = []struct {
	name    string
	run     func(s *set, dst, x []float32)
	f       func(x float64) float64
	allowed func(x, y float64) float64
	top     float64 // the largest argument, if there is one
}{
	{
		"GELU", func(s *set, dst, x []float32) { s.gelu(dst, x) },
		func(x float64) float64 { return x * math.Erfc(-x/math.Sqrt2) / 2 },
		func(x, _ float64) float64 { return 2e-7 * max(1, math.Abs(x)) }, math.Inf(1),
	}, {
		"GELUGrad", func(s *set, dst, x []float32) { s.geluGrad(dst, x, ones(len(x))) },
		func(x float64) float64 {
			return math.Erfc(-x/math.Sqrt2)/2 + x*math.Exp(-x*x/2)/math.Sqrt(2*math.Pi)
		},
		func(_, _ float64) float64 { return 4e-7 }, math.Inf(1),
	}, {
		"Tanh", func(s *set, dst, x []float32) { s.tanh(dst, x) },
		math.Tanh,
		func(_, y float64) float64 { return 4e-7 * math.Abs(y) }, math.Inf(1),
	}, {
		"ExpSum", func(s *set, dst, x []float32) { s.expSum(dst, x, 0) },
		math.Exp,
		func(_, y float64) float64 {
			if y < 1.2e-38 {
				return y // may be 0
			}
			return 3e-7 * y
		}, 88,
	},
}

func ones(n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = 1
	}
	return x
}

// arguments cover every exponent, the interesting range densely, and the special values.
func arguments(top float64) []float32 {
	var x []float32
	for bits := uint32(0); bits < 0x7f800000; bits += 0x9f01 {
		v := math.Float32frombits(bits)
		x = append(x, v, -v)
	}
	for v := float32(-110); v < 110; v += 0x1p-9 {
		x = append(x, v)
	}
	x = append(x, special...)
	for i, v := range x {
		if float64(v) > top {
			x[i] = float32(top)
		}
	}
	return x
}

func TestCurves(t *testing.T) {
	for _, s := range implementations() {
		for _, c := range curves {
			t.Run(s.name+"/"+c.name, func(t *testing.T) {
				t.Parallel()
				x := arguments(c.top)
				got := make([]float32, len(x))
				c.run(s, got, x)
				var worst float64
				for i, v := range x {
					want := c.f(float64(v))
					if !within(float64(got[i]), want, c.allowed(float64(v), want)+0x1p-149) {
						t.Fatalf("at %v: %v, want %v", v, got[i], want)
					}
					if d := math.Abs(float64(got[i])-want) / c.allowed(float64(v), want); d > worst && want > 1.2e-38 {
						worst = d
					}
				}
				t.Logf("at most %.2f of the error that is allowed", worst)
			})
		}
	}
}

// TestCurvesDependOnNothingElse holds that an element's result depends on neither its place nor its neighbours, and
// that nothing else is written.
func TestCurvesDependOnNothingElse(t *testing.T) {
	for _, s := range implementations() {
		for _, c := range curves {
			rng := newRand(t)
			for n := range 71 {
				x, changedX := guarded[float32](rng, n, 7)
				for i, v := range normals(rng, n) {
					x[i] = min(4*v, float32(c.top))
				}
				dst, changed := guarded[float32](rng, n, 7)
				c.run(s, dst, x)
				for i := range x {
					alone := []float32{0}
					c.run(s, alone, x[i:i+1])
					if !same(dst[i], alone[0]) {
						t.Fatalf("%s %s: %v is made %v at %d of %d, and %v alone", s.name, c.name, x[i], dst[i], i, n, alone[0])
					}
				}
				if c.run(s, x, x); n > 0 && !same(x[n-1], dst[n-1]) || n > 0 && !same(x[0], dst[0]) {
					t.Fatalf("%s %s: %d elements: other results in place", s.name, c.name, n)
				}
				if changed() || changedX() {
					t.Fatalf("%s %s: %d elements: memory around them was written", s.name, c.name, n)
				}
			}
		}
	}
}

func TestActivationsAtSpecialValues(t *testing.T) {
	inf, nan, zero := float32(math.Inf(1)), float32(math.NaN()), float32(math.Copysign(0, -1))
	for _, s := range implementations() {
		for _, c := range []struct {
			name    string
			run     func(dst, x []float32)
			x, want []float32
		}{
			// as torch.relu, torch.tanh and torch.nn.functional.gelu of 1.13
			{"relu", s.relu, []float32{nan, inf, -inf, 0, -1, 1e-45}, []float32{nan, inf, 0, 0, 0, 1e-45}},
			{"tanh", s.tanh, []float32{nan, inf, -inf, zero, -20, 20, 1e-45}, []float32{nan, 1, -1, zero, -1, 1, 1e-45}},
			{"gelu", s.gelu, []float32{nan, inf, -inf, 0, 1e30}, []float32{nan, inf, nan, 0, 1e30}},
		} {
			got := make([]float32, len(c.x))
			c.run(got, c.x)
			for i := range got {
				if !same(got[i], c.want[i]) {
					t.Errorf("%s %s(%v) = %v, want %v", s.name, c.name, c.x[i], got[i], c.want[i])
				}
			}
		}
	}
}
