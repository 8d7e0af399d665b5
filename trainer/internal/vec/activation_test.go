package vec

import (
	"math"
	"testing"
)

// curves lists the kernels that approximate functions. f is the function in float64, and allowed is the error that the
// kernel's documentation states. Tests allow 2^-149 more, for subnormal results.
var curves = []struct {
	name    string
	run     func(s *kernelSet, dst, x []float32)
	f       func(x float64) float64
	allowed func(x, y float64) float64
	top     float64 // the largest argument, if there is one
}{
	{
		"GELU", func(s *kernelSet, dst, x []float32) { s.gelu(dst, x) },
		func(x float64) float64 { return x * math.Erfc(-x/math.Sqrt2) / 2 },
		func(x, _ float64) float64 { return 2e-7 * max(1, math.Abs(x)) }, math.Inf(1),
	}, {
		"GELUGrad", func(s *kernelSet, dst, x []float32) { s.geluGrad(dst, x, ones(len(x))) },
		func(x float64) float64 {
			return math.Erfc(-x/math.Sqrt2)/2 + x*math.Exp(-x*x/2)/math.Sqrt(2*math.Pi)
		},
		func(_, _ float64) float64 { return 4e-7 }, math.Inf(1),
	}, {
		"Tanh", func(s *kernelSet, dst, x []float32) { s.tanh(dst, x) },
		math.Tanh,
		func(_, y float64) float64 { return 4e-7 * math.Abs(y) }, math.Inf(1),
	}, {
		"ExpSum", func(s *kernelSet, dst, x []float32) { s.expSum(dst, x, 0) },
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

// arguments returns values of every exponent, a dense sample of the interesting range, and the special values.
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

func TestCurvesAreNearTheirFunctions(t *testing.T) {
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

// TestCurvesDependOnNothingElse checks that an element's result depends neither on its place nor on its neighbors, and
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

func TestActivationsAreRightAtSpecialValues(t *testing.T) {
	inf, nan, zero := float32(math.Inf(1)), float32(math.NaN()), float32(math.Copysign(0, -1))
	for _, s := range implementations() {
		for _, c := range []struct {
			name    string
			run     func(dst, x []float32)
			x, want []float32
		}{
			// The wanted values are those of torch.relu, torch.tanh and torch.nn.functional.gelu of 1.13.
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

var rowLengths = []int{1, 2, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 128, 1000}

// TestSoftmaxIsNearItsDefinition allows some roundings each of the exponentials, their sum and the quotient.
func TestSoftmaxIsNearItsDefinition(t *testing.T) {
	with(t, func(t *testing.T) {
		rng := newRand(t)
		for _, n := range rowLengths {
			x, dy := normals(rng, n), normals(rng, n)
			for i := range x {
				x[i] = 1000 + 5*x[i]
			}
			y, dx := make([]float32, n), make([]float32, n)
			Softmax(y, x)
			SoftmaxGrad(dx, y, dy)
			var total, dot float64
			for _, v := range x {
				total += math.Exp(float64(v) - 1000)
			}
			for i := range y {
				dot += float64(y[i]) * float64(dy[i])
			}
			for i, v := range x {
				want := math.Exp(float64(v)-1000) / total
				if !within(float64(y[i]), want, 8e-7*want+1.2e-38) {
					t.Fatalf("%d: softmax %v, want %v", n, y[i], want)
				}
				// The dot product, the difference and the product are rounded once each.
				want = float64(y[i]) * (float64(dy[i]) - dot)
				if !within(float64(dx[i]), want, 3*eps*float64(y[i])*(math.Abs(dot)+math.Abs(float64(dy[i])-dot))) {
					t.Fatalf("%d: gradient %v, want %v", n, dx[i], want)
				}
			}
			if Softmax(x, x); !same(x[0], y[0]) || !same(x[n-1], y[n-1]) {
				t.Fatalf("%d: another result in place", n)
			}
		}
	})
}

func TestSoftmaxOfSpecialRowsIsPyTorchs(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	with(t, func(t *testing.T) {
		for _, c := range []struct{ x, want []float32 }{ // the results of torch.softmax
			{[]float32{0, -inf, 0, -inf}, []float32{0.5, 0, 0.5, 0}},
			{[]float32{-inf, -inf}, []float32{nan, nan}},
			{[]float32{inf, 0}, []float32{nan, nan}},
			{[]float32{nan, 0}, []float32{nan, nan}},
			{[]float32{math.MaxFloat32, -math.MaxFloat32}, []float32{1, 0}},
			{[]float32{}, []float32{}},
		} {
			got := make([]float32, len(c.x))
			Softmax(got, c.x)
			for i := range got {
				// +Inf - +Inf is NaN in only one element, but then the sum is NaN, which makes all elements NaN.
				if !same(got[i], c.want[i]) {
					t.Errorf("softmax(%v) = %v, want %v", c.x, got, c.want)
					break
				}
			}
		}
	})
}

// TestNormalizeIsNearItsDefinition compares with layer norm in float64, for rows whose mean may be far larger than
// their deviation. The rounding error of the mean then counts, in units of the deviation.
func TestNormalizeIsNearItsDefinition(t *testing.T) {
	const epsilon = 1e-5
	with(t, func(t *testing.T) {
		rng := newRand(t)
		for _, n := range rowLengths {
			for _, offset := range []float32{0, 100, 1e4} {
				x, gain, bias := normals(rng, n), normals(rng, n), normals(rng, n)
				for i := range x {
					x[i] += offset
				}
				got := make([]float32, n)
				mean, rstd := Normalize(got, x, gain, bias, epsilon)
				wantMean, wantRstd := stats(x, epsilon)
				if !within(float64(mean), wantMean, eps*(math.Abs(wantMean)+1e-6)) ||
					!within(float64(rstd), wantRstd, 1e-6*wantRstd) {
					t.Fatalf("%d, offset %v: mean %v, rstd %v; want %v, %v", n, offset, mean, rstd, wantMean, wantRstd)
				}
				for i := range x {
					unit := (float64(x[i]) - wantMean) * wantRstd
					tolerance := 8*eps*(1+math.Abs(unit)) + eps*math.Abs(wantMean)*wantRstd
					want := unit*float64(gain[i]) + float64(bias[i])
					if !within(float64(got[i]), want, tolerance*(1+math.Abs(float64(gain[i])))+2*eps*math.Abs(want)) {
						t.Fatalf("%d, offset %v: %v, want %v", n, offset, got[i], want)
					}
				}
			}
		}
	})
}

func stats(x []float32, epsilon float64) (mean, rstd float64) {
	var variance float64
	for _, v := range x {
		mean += float64(v) / float64(len(x))
	}
	for _, v := range x {
		variance += (float64(v) - mean) * (float64(v) - mean) / float64(len(x))
	}
	return mean, 1 / math.Sqrt(variance+epsilon)
}

// TestNormalizeGradIsNearDifferenceQuotients compares with difference quotients of Normalize's definition, and checks that
// the gradients of gain and bias are added to the values before.
func TestNormalizeGradIsNearDifferenceQuotients(t *testing.T) {
	const epsilon, h = 1e-5, 1e-5
	with(t, func(t *testing.T) {
		rng := newRand(t)
		for _, n := range []int{2, 7, 16, 23, 40} {
			x, dy, gain, bias := normals(rng, n), normals(rng, n), normals(rng, n), normals(rng, n)
			dx, dgain, dbias := make([]float32, n), ones(n), ones(n)
			mean, rstd := Normalize(dx, x, gain, bias, epsilon)
			NormalizeGrad(dx, dgain, dbias, x, dy, gain, mean, rstd)
			objective := func(i int, delta float64) (total float64) {
				xs := make([]float64, n)
				var mean, variance float64
				for j, v := range x {
					xs[j] = float64(v)
					if j == i {
						xs[j] += delta
					}
					mean += xs[j] / float64(n)
				}
				for _, v := range xs {
					variance += (v - mean) * (v - mean) / float64(n)
				}
				for j, v := range xs {
					total += float64(dy[j]) * float64(gain[j]) * (v - mean) / math.Sqrt(variance+epsilon)
				}
				return total
			}
			for i := range x {
				want := (objective(i, h) - objective(i, -h)) / (2 * h)
				// The error is h*h times a third derivative, which grows like rstd cubed, and the roundings of float32.
				scale := 1 + float64(rstd)
				if !within(float64(dx[i]), want, 1e-5*scale*scale*scale) {
					t.Fatalf("%d: dx[%d] = %v, want %v", n, i, dx[i], want)
				}
				unit := (float64(x[i]) - float64(mean)) * float64(rstd)
				if want := 1 + float64(dy[i])*unit; !within(float64(dgain[i]), want,
					8*eps*(1+math.Abs(want)+math.Abs(unit))) {
					t.Fatalf("%d: dgain[%d] = %v, want %v", n, i, dgain[i], want)
				}
				if want := 1 + float64(dy[i]); !within(float64(dbias[i]), want, eps*(1+math.Abs(want))) {
					t.Fatalf("%d: dbias[%d] = %v, want %v", n, i, dbias[i], want)
				}
			}
			if NormalizeGrad(dy, dgain, dbias, x, dy, gain, mean, rstd); !same(dy[0], dx[0]) || !same(dy[n-1], dx[n-1]) {
				t.Fatalf("%d: another result in place", n)
			}
		}
	})
}
