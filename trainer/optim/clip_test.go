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

// PyTorch takes norms in float32: sums of a thousand squares in several lanes, then two roots and the quotient.
// That is a few units of 6e-8; a product more for the gradients.
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

// What is left of gradients that are not finite must not be taken for gradients.
func TestClipOfWhatIsNotFinite(t *testing.T) {
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
