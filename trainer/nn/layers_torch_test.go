package nn_test

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ddpbatch/internal/testkit/torch"
	"ddpbatch/trainer/internal/mt19937"
	"ddpbatch/trainer/nn"
)

// Initial values are PyTorch's bit for bit. Outputs, gradients and running statistics are equal up to the order of sums, of
// at most some thousand products of numbers near 1 (see near).
func TestLayersAreThoseOfPyTorch(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	cases := layerCases()
	results := make([][][]float32, len(cases)) // in the order of layers.py
	var names []string
	var in []float32
	for i := range cases {
		c := &cases[i]
		c.Seed, c.Shape[0] = uint64(i), 3+i%3
		module := c.build(mt19937.New(c.Seed))
		for _, p := range module.Params() {
			results[i] = append(results[i], slices.Clone(p.Value))
			names = append(names, p.Name)
		}
		for _, training := range c.Training {
			x, dy, step := c.step(module, r, training)
			in = append(append(in, x.Data...), dy.Data...)
			results[i] = append(results[i], step...)
		}
	}

	out, printed := runLayers(t, cases, in)
	if theirs := strings.Fields(printed); !slices.Equal(theirs, names) {
		t.Errorf("parameters are %q, PyTorch's are %q", names, theirs)
	}
	for i, c := range cases {
		params := len(c.build(mt19937.New(0)).Params())
		for j, got := range results[i] {
			if len(out) < len(got) {
				t.Fatalf("%s: PyTorch has less results", c.Code)
			}
			if at := differs(got, out[:len(got)], j < params); at >= 0 {
				t.Errorf("case %d, %s of %v: result %d (%d parameters come first): element %d is %g, PyTorch has %g",
					i, c.Code, c.Shape, j, params, at, got[at], out[at])
			}
			out = out[len(got):]
		}
	}
	if len(out) != 0 {
		t.Errorf("PyTorch has %d numbers more", len(out))
	}
}

// step is what layers.py does in a step.
func (c *layerCase) step(module nn.Module, r *rand.Rand, training bool) (x, dy nn.Matrix, results [][]float32) {
	cols := 1
	for _, n := range c.Shape[1:] {
		cols *= n
	}
	pass := nn.Pass{Training: training}
	nn.ZeroGrad(module.Params())
	x = normal(r, c.Shape[0], cols)
	y := module.Forward(&pass, x)
	dy = normal(r, y.Rows, y.Cols)
	results = append(results, slices.Clone(y.Data), slices.Clone(module.Backward(&pass, dy, true).Data))
	for _, p := range module.Params() {
		results = append(results, slices.Clone(p.Grad))
	}
	for _, b := range module.Buffers() {
		results = append(results, slices.Clone(b.Value))
	}
	return x, dy, results
}

func normal(r *rand.Rand, rows, cols int) nn.Matrix {
	m := nn.NewMatrix(rows, cols)
	for i := range m.Data {
		m.Data[i] = float32(r.NormFloat64())
	}
	return m
}

func runLayers(t *testing.T, cases []layerCase, in []float32) (out []float32, printed string) {
	t.Helper()
	dir := t.TempDir()
	list, err := json.Marshal(cases)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "cases.json"), list, 0o600); err != nil {
		t.Fatal(err)
	}
	torch.WriteFloats(t, filepath.Join(dir, "in"), in)
	script, err := os.ReadFile("testdata/layers.py")
	if err != nil {
		t.Fatal(err)
	}
	printed = torch.Run(t, string(script), dir)
	return torch.ReadFloats(t, filepath.Join(dir, "out")), printed
}

// differs returns the first element where the vectors are not equal, or -1: bit for bit, or up to 1e-5 of the largest element, where
// float32 has 6e-8 and the error of a sum of n products grows with the square root of n. Where sums cancel (the gradient of a
// bias that batch normalization subtracts again is 0) their terms count, and those are not below 0.1.
func differs(got, want []float32, exact bool) int {
	top := 0.1
	for _, v := range want {
		top = max(top, math.Abs(float64(v)))
	}
	for i, v := range got {
		if exact && math.Float32bits(v) != math.Float32bits(want[i]) || !(math.Abs(float64(v-want[i])) <= 1e-5*top) {
			return i
		}
	}
	return -1
}
