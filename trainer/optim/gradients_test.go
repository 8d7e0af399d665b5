package optim

import (
	_ "embed"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ddpbatch/internal/testkit/torch"
	"ddpbatch/trainer/nn"
)

//go:embed testdata/clip.py
var clipScript string

// clipTolerance allows for PyTorch's norms in float32. It sums a thousand squares in several lanes, then takes two
// roots and the quotient, which is a few units of 6e-8. The gradients are one more product.
const clipTolerance = 1e-6

func TestClipEqualsPyTorchs(t *testing.T) {
	t.Parallel()
	const first = 700
	r := rand.New(rand.NewPCG(3, 4))
	grads := make([]float32, 1000)
	for i := range grads {
		grads[i] = float32(r.NormFloat64())
	}
	file := filepath.Join(t.TempDir(), "grads.f32")
	torch.WriteFloats(t, file, grads)
	limits := []float64{0.01, 1, 30, 1e6} // the norm is near 31.6
	args := []string{file, fmt.Sprint(first)}
	for _, limit := range limits {
		args = append(args, fmt.Sprint(limit))
	}
	norms := strings.Fields(torch.Run(t, clipScript, args...))
	for i, limit := range limits {
		a, b := param("a", make([]float32, first)...), param("b", make([]float32, len(grads)-first)...)
		unused := param("u", 1, 2, 3)
		copy(a.Grad, grads)
		copy(b.Grad, grads[first:])
		unused.HasGrad = false
		copy(unused.Grad, []float32{100, 100, 100}) // old values
		params := []*nn.Param{a, unused, b, a}
		norm := math.Sqrt(SquaredNorm(params))
		var want float64
		if _, err := fmt.Sscan(norms[i], &want); err != nil {
			t.Fatal(err)
		}
		if math.Abs(norm-want) > clipTolerance*want {
			t.Errorf("norm %v, PyTorch has %v", norm, want)
		}
		ClipGradNorm(params, limit, norm)
		clipped := torch.ReadFloats(t, fmt.Sprint(file, ".", i))
		for j, g := range slices.Concat(a.Grad, b.Grad) {
			if math.Abs(float64(g-clipped[j])) > clipTolerance*math.Abs(float64(clipped[j])) {
				t.Fatalf("to %g: gradient %d is %v, PyTorch has %v", limit, j, g, clipped[j])
			}
		}
		if !slices.Equal(unused.Grad, []float32{100, 100, 100}) {
			t.Errorf("a parameter without gradient was clipped: %v", unused.Grad)
		}
	}
}

func TestSquaredNormDoesNotOverflow(t *testing.T) {
	p := param("w", 0, 0)
	p.Grad[0], p.Grad[1] = 3e38, 4e38/2
	if got, want := math.Sqrt(SquaredNorm([]*nn.Param{p})), math.Hypot(3e38, 2e38); math.Abs(got-want) > 1e-6*want {
		t.Errorf("norm %g, want %g", got, want)
	}
	if got := SquaredNorm(nil); got != 0 {
		t.Errorf("norm of nothing: %g", got)
	}
}

// If a gradient is not finite, clipping leaves NaN in the gradients, so that they cannot be mistaken for usable gradients.
func TestClipLeavesNoGradientsWhereNotFinite(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, c := range []struct{ grad, want []float32 }{
		{[]float32{1, inf}, []float32{0, nan}},
		{[]float32{1, nan}, []float32{nan, nan}},
	} {
		p := param("w", 0, 0)
		copy(p.Grad, c.grad)
		params := []*nn.Param{p}
		ClipGradNorm(params, 1, math.Sqrt(SquaredNorm(params)))
		if fmt.Sprint(p.Grad) != fmt.Sprint(c.want) {
			t.Errorf("%v became %v, want %v", c.grad, p.Grad, c.want)
		}
	}
}

// The scale follows the rule in the documentation of PyTorch's GradScaler: init_scale 2^16, growth_factor 2,
// backoff_factor 0.5, growth_interval 2000 consecutive iterations without Inf or NaN. (GradScaler runs only on CUDA,
// so the test does not run it.)
func TestScaleFollowsTheRule(t *testing.T) {
	type phase struct {
		steps  int
		finite bool
		want   float32 // the scale after these steps
	}
	for i, phases := range [][]phase{
		{{1999, true, 65536}, {1, true, 131072}, {1999, true, 131072}, {1, true, 262144}},
		{{1, false, 32768}, {1, false, 16384}, {1, false, 8192}},
		{{1999, true, 65536}, {1, false, 32768}, {1999, true, 32768}, {1, true, 65536}},
		{{2000, true, 131072}, {1, false, 65536}, {2000, true, 131072}},
		{{142, false, 0x1p-126}, {5, false, 0x1p-126}, {2000, true, 0x1p-125}}, // 2^16 / 2^142
		{{111 * 2000, true, 0x1p127}, {2000, true, 0x1p127}, {1, false, 0x1p126}},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			s := NewLossScaler()
			if s.Scale() != 65536 {
				t.Fatalf("the scale begins at %g", s.Scale())
			}
			for j, p := range phases {
				for range p.steps {
					s.Update(p.finite)
				}
				if s.Scale() != p.want {
					t.Fatalf("phase %d: scale %g, want %g", j, s.Scale(), p.want)
				}
			}
		})
	}
}

func TestUnscaleReportsWhatIsNotFinite(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(-1))
	for _, c := range []struct {
		grad   []float32
		finite bool
	}{
		{[]float32{65536, -1, 0, 3e38, 1e-40}, true},
		{[]float32{65536, nan}, false},
		{[]float32{inf, 65536}, false},
		{nil, true},
	} {
		a, b := param("a", make([]float32, len(c.grad))...), param("b", 0)
		unused := param("unused", 0)
		copy(a.Grad, c.grad)
		b.Grad[0] = 3 * 65536
		unused.HasGrad, unused.Grad[0] = false, nan // an old value
		s := NewLossScaler()
		if finite := s.Unscale([]*nn.Param{a, b, unused, b}); finite != c.finite {
			t.Errorf("%v: finite %v", c.grad, finite)
		}
		for i, g := range c.grad {
			want := float32(float64(g) / 65536)
			if a.Grad[i] != want && !(a.Grad[i] != a.Grad[i] && want != want) {
				t.Errorf("%g became %g, want %g", g, a.Grad[i], want)
			}
		}
		if b.Grad[0] != 3 {
			t.Errorf("a gradient that is listed twice became %g, want 3", b.Grad[0])
		}
	}
}

// A loss scaler that is restored after any number of steps continues like one that never stopped.
func TestLossScalerRestores(t *testing.T) {
	finite := func(step int) bool { return step != 700 && step != 6900 }
	const n = 7000
	var want []float32
	s := NewLossScaler()
	for step := range n {
		s.Update(finite(step))
		want = append(want, s.Scale())
	}
	for _, stop := range []int{0, 1, 699, 700, 701, 2699, 2700, 2701, 4701, 6900, 6901, n - 1} {
		first := NewLossScaler()
		for step := range stop {
			first.Update(finite(step))
		}
		second := NewLossScaler()
		for i, slot := range first.State() {
			if to := second.State()[i]; to.Name != slot.Name || !slices.Equal(to.Shape, []int{}) || copy(to.Value, slot.Value) != 1 {
				t.Fatalf("slot %d is %v", i, to)
			}
		}
		for step := stop; step < n; step++ {
			second.Update(finite(step))
			if second.Scale() != want[step] {
				t.Fatalf("stopped before step %d: scale %g after step %d, want %g", stop, second.Scale(), step, want[step])
			}
		}
	}
	if slices.Max(want) == want[0] || slices.Min(want) == want[0] {
		t.Errorf("the scale only went one way: from %g to %g", slices.Min(want), slices.Max(want))
	}
}
