package nn_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/gonum/mathext/prng"

	"ddpbatch/internal/testkit/torch"
	"ddpbatch/trainer/nn"
)

// Initial values are PyTorch's bit for bit. Outputs, gradients and running statistics are equal up to the order of sums, of
// at most some thousand products of numbers near 1 (see differs).
func TestLayersAreThoseOfPyTorch(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	cases := layerCases()
	results := make([][][]float32, len(cases)) // in the order of layers.py
	var names []string
	var in []float32
	for i := range cases {
		c := &cases[i]
		c.Seed, c.Shape[0] = uint64(i), 3+i%3
		module := c.build(seeded(c.Seed))
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
		params := len(c.build(seeded(0)).Params())
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

// seeded returns the generator that torch.manual_seed gives.
func seeded(seed uint64) nn.Source {
	src := prng.NewMT19937()
	src.Seed(seed)
	return src
}

// step does what layers.py does in a step.
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

// differs returns the index of the first element in which the vectors differ, or -1. If exact is true it compares bits. Otherwise it allows
// 1e-5 of the largest element: float32 rounds at 6e-8, and the error of a sum of n products grows with the square root of n. If sums cancel
// (the gradient of a bias that batch normalization subtracts again is 0), the terms count instead, which are at least about 0.1.
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

// layerCase is a module of this package and the same module of PyTorch.
type layerCase struct {
	Code     string `json:"code"`     // a Python expression for PyTorch's module
	Seed     uint64 `json:"seed"`     // of the initial values
	Shape    []int  `json:"shape"`    // of x; the first is the number of rows
	Training []bool `json:"training"` // of each step
	build    func(nn.Source) nn.Module
}

func layer(code string, shape []int, build func(nn.Source) nn.Module) layerCase {
	return layerCase{Code: code, Shape: append([]int{0}, shape...), Training: []bool{true}, build: build}
}

func imageLayer(code string, in nn.Image, build func(nn.Source) nn.Module) layerCase {
	return layer(code, []int{in.Channels, in.Height, in.Width}, build)
}

// trained returns c with several steps. One of them evaluates with the running statistics of the steps before.
func (c layerCase) trained() layerCase {
	c.Training = []bool{true, true, true, false, true}
	return c
}

// layerCases returns layers for images, linear layers and small networks of them.
func layerCases() []layerCase { return slices.Concat(convCases(), poolCases(), otherCases()) }

func convCases() []layerCase {
	var cases []layerCase
	for channels := 1; channels <= 5; channels++ {
		for _, kernel := range []int{1, 3, 5} {
			for _, stride := range []int{1, 2, 3} {
				for _, padding := range []int{0, 1, 2} {
					in := nn.Image{Channels: channels, Height: 7 + channels%2, Width: 6 + kernel%2 + stride}
					cases = append(cases, convCase(in, nn.Conv2dConfig{Out: 6 - channels, Kernel: kernel, Stride: stride,
						Padding: padding, NoBias: padding == 1 && stride == 2}))
				}
			}
		}
	}
	return append(cases,
		convCase(nn.Image{Channels: 16, Height: 14, Width: 14}, nn.Conv2dConfig{Out: 32, Kernel: 3, Stride: 1, Padding: 1}),
		convCase(nn.Image{Channels: 2, Height: 5, Width: 5}, nn.Conv2dConfig{Out: 3, Kernel: 5, Stride: 1}),
		convCase(nn.Image{Channels: 1, Height: 1, Width: 1}, nn.Conv2dConfig{Out: 1, Kernel: 2, Stride: 2, Padding: 1}))
}

func convCase(in nn.Image, cfg nn.Conv2dConfig) layerCase {
	bias := "True"
	if cfg.NoBias {
		bias = "False"
	}
	code := fmt.Sprintf("nn.Conv2d(%d, %d, %d, stride=%d, padding=%d, bias=%s)",
		in.Channels, cfg.Out, cfg.Kernel, cfg.Stride, cfg.Padding, bias)
	return imageLayer(code, in, func(s nn.Source) nn.Module { return nn.NewConv2d(in, cfg, s) })
}

// poolCases returns pooling layers for images of several widths. Half a width is less or more than the eight results that assembly computes
// at once.
func poolCases() []layerCase {
	var cases []layerCase
	for _, in := range []nn.Image{{Channels: 3, Height: 8, Width: 6}, {Channels: 2, Height: 9, Width: 7},
		{Channels: 1, Height: 4, Width: 34}} {
		for _, w := range [][3]int{{2, 2, 0}, {3, 2, 1}, {2, 1, 0}, {3, 3, 0}, {4, 2, 2}, {1, 2, 0}} {
			args := fmt.Sprintf("(%d, stride=%d, padding=%d)", w[0], w[1], w[2])
			plain := nn.MaxPool2dConfig{Kernel: w[0], Stride: w[1], Padding: w[2]}
			rectified := plain
			rectified.ReLU = true
			mean := nn.AvgPool2dConfig{Kernel: w[0], Stride: w[1], Padding: w[2]}
			cases = append(cases,
				imageLayer("nn.MaxPool2d"+args, in, func(nn.Source) nn.Module { return nn.NewMaxPool2d(in, plain) }),
				imageLayer("nn.Sequential(nn.ReLU(), nn.MaxPool2d"+args+")", in,
					func(nn.Source) nn.Module { return nn.NewMaxPool2d(in, rectified) }),
				imageLayer("nn.AvgPool2d"+args, in, func(nn.Source) nn.Module { return nn.NewAvgPool2d(in, mean) }))
		}
	}
	return cases
}

func otherCases() []layerCase {
	image := nn.Image{Channels: 3, Height: 5, Width: 4}
	plain := nn.CNNConfig{In: nn.Image{Channels: 1, Height: 12, Width: 13}, Channels: []int{4, 6}, Kernel: 3, Classes: 10}
	norm := nn.CNNConfig{In: nn.Image{Channels: 2, Height: 8, Width: 8}, Channels: []int{3}, Kernel: 5, BatchNorm: true,
		Hidden: []int{8}, Classes: 3}
	return []layerCase{
		layer("nn.Linear(7, 5)", []int{7}, func(s nn.Source) nn.Module { return nn.NewLinear(7, 5, s) }),
		layer("nn.Linear(1000, 1)", []int{1000}, func(s nn.Source) nn.Module { return nn.NewLinear(1000, 1, s) }),
		layer("nn.ReLU()", []int{7}, func(nn.Source) nn.Module { return nn.NewReLU() }),
		layer("nn.BatchNorm1d(6)", []int{6}, func(nn.Source) nn.Module { return nn.NewBatchNorm1d(6, nil) }).trained(),
		imageLayer("nn.BatchNorm2d(3)", image, func(nn.Source) nn.Module { return nn.NewBatchNorm2d(image, nil) }).trained(),
		imageLayer(`nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 6, 3, padding=1), nn.ReLU(),
			nn.MaxPool2d(2), nn.Flatten(), nn.Linear(54, 10))`,
			plain.In, func(s nn.Source) nn.Module { return nn.NewCNN(plain, s) }),
		imageLayer(`nn.Sequential(nn.Conv2d(2, 3, 5, padding=2), nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
			nn.Linear(48, 8), nn.ReLU(), nn.Linear(8, 3))`,
			norm.In, func(s nn.Source) nn.Module { return nn.NewCNN(norm, s) }).trained(),
	}
}
