package nn

import (
	_ "embed"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"ddpbatch/internal/testkit/torch"
)

//go:embed testdata/transformer.py
var transformerScript string

// torchCase is a module or a loss, with its input.
type torchCase struct {
	Name    string       `json:"name"`
	Kind    string       `json:"kind"`
	Heads   int          `json:"heads"`
	Context int          `json:"context"`
	Layers  int          `json:"layers"`
	Cols    int          `json:"cols"`
	Params  []torchParam `json:"params"`

	module Module
	loss   func(y Matrix) (float64, Matrix) // instead of a module
	x, dy  Matrix
	target []float32
}

type torchParam struct {
	Name  string `json:"name"`
	Shape []int  `json:"shape"`
}

// Every layer, both losses and whole models give PyTorch's results in float64.
func TestTransformerIsPyTorchs(t *testing.T) {
	t.Parallel()
	cases := append(torchLayers(), torchLosses()...)
	cases = append(cases, torchGPTs()...)
	dir := t.TempDir()
	for _, c := range cases {
		c.write(t, dir)
	}
	list, err := json.Marshal(cases)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "cases.json"), list, 0o600); err != nil {
		t.Fatal(err)
	}
	torch.Run(t, transformerScript, dir)
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) { c.compare(t, dir) })
	}
}

func (c *torchCase) write(t *testing.T, dir string) {
	array := func(name string, data []float32) { torch.WriteFloats(t, filepath.Join(dir, c.Name+"."+name), data) }
	c.Cols = c.x.Cols
	array("x", c.x.Data)
	array("target", c.target)
	c.dy = Matrix{Rows: 1, Cols: 1, Data: []float32{1}}
	if c.module != nil {
		y := c.module.Forward(new(Pass), c.x)
		c.dy = randomMatrix(source(), y.Rows, y.Cols)
		for _, p := range c.module.Params() {
			c.Params = append(c.Params, torchParam{p.Name, p.Shape})
			array(p.Name, p.Value)
		}
	}
	array("dy", c.dy.Data)
}

func (c *torchCase) compare(t *testing.T, dir string) {
	array := func(name string) []float32 { return torch.ReadFloats(t, filepath.Join(dir, c.Name+"."+name)) }
	if c.loss != nil {
		loss, dx := c.loss(c.x)
		closeTo(t, "loss", []float32{float32(loss)}, array("y"))
		closeTo(t, "gradient", dx.Data, array("dx"))
		return
	}
	pass := Pass{Training: true}
	closeTo(t, "output", slices.Clone(c.module.Forward(&pass, c.x).Data), array("y"))
	hasInput := c.Kind != "embedding" && c.Kind != "gpt"
	dx := c.module.Backward(&pass, c.dy, hasInput)
	if hasInput {
		closeTo(t, "gradient of the input", dx.Data, array("dx"))
	}
	for _, p := range c.module.Params() {
		closeTo(t, "gradient of "+p.Name, p.Grad, array(p.Name+".grad"))
	}
}

// closeTo allows errors of 5e-6 of the largest element. An element is a sum of up to some thousand products, which partly cancel. Their
// factors have passed up to 20 layers, and each layer rounds to 24 bits (6e-8).
func closeTo(t *testing.T, what string, got, want []float32) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d elements, want %d", what, len(got), len(want))
	}
	var largest, worst float64
	at := 0
	for i, w := range want {
		largest = max(largest, math.Abs(float64(w)))
		if d := math.Abs(float64(got[i]) - float64(w)); !(d <= worst) {
			worst, at = d, i
		}
	}
	if !(worst <= 5e-6*largest) {
		t.Errorf("%s: element %d is %g, in PyTorch %g, with a largest of %g", what, at, got[at], want[at], largest)
	}
}

func torchLayers() []*torchCase {
	r := source()
	norm := NewLayerNorm(37)
	shake(norm, r)
	embed := NewEmbedding(11, 5, 6, r)
	wide := randomMatrix(r, 31, 33) // reaches both tails of the functions
	for i := range wide.Data {
		wide.Data[i] *= float32(i % 9)
	}
	cases := []*torchCase{
		{Name: "layer-norm", Kind: "layer_norm", module: norm, x: randomMatrix(r, 13, 37)},
		{Name: "gelu", Kind: "gelu", module: NewGELU(), x: wide},
		{Name: "tanh", Kind: "tanh", module: NewTanh(), x: wide},
		{Name: "embedding", Kind: "embedding", Context: 5, module: embed, x: symbols(GPTConfig{Context: 5, Symbols: 11}, 7)},
	}
	for _, a := range []struct {
		name                             string
		width, heads, context, sequences int
	}{
		{"attention-1", 4, 2, 1, 3}, {"attention-7", 3, 1, 7, 5}, {"attention-128", 20, 4, 128, 2}, {"attention-101", 6, 2, 101, 3},
	} {
		cases = append(cases, &torchCase{Name: a.name, Kind: "attention", Heads: a.heads, Context: a.context,
			module: NewCausalAttention(a.width, a.heads, a.context), x: randomMatrix(r, a.sequences*a.context, 3*a.width)})
	}
	return cases
}

func torchLosses() []*torchCase {
	logits, y, target := randomMatrix(source(), 13, 19), randomMatrix(source(), 7, 5), NewMatrix(7, 5)
	for i := range logits.Data {
		logits.Data[i] *= 8
	}
	labels, classes := make([]int, 13), make([]float32, 13)
	for i := range labels {
		labels[i], classes[i] = i*5%19, float32(i*5%19)
	}
	return []*torchCase{
		{Name: "cross-entropy", Kind: "cross_entropy", x: logits, target: classes,
			loss: func(y Matrix) (float64, Matrix) { return new(CrossEntropy).Loss(y, labels) }},
		{Name: "mse", Kind: "mse", x: y, target: target.Data,
			loss: func(y Matrix) (float64, Matrix) { return new(MSE).Loss(y, target) }},
	}
}

func torchGPTs() (cases []*torchCase) {
	for _, g := range []struct {
		name      string
		sequences int
		cfg       GPTConfig
	}{
		{"gpt-1", 3, GPTConfig{Layers: 1, Heads: 1, Width: 5, Context: 1, Symbols: 7}},
		{"gpt-7", 2, GPTConfig{Layers: 3, Heads: 2, Width: 6, Context: 7, Symbols: 11}},
		{"gpt-128", 2, GPTConfig{Layers: 2, Heads: 4, Width: 36, Context: 128, Symbols: 67}},
	} {
		model := NewGPT(g.cfg, source())
		shake(model, source())
		cases = append(cases, &torchCase{Name: g.name, Kind: "gpt", Heads: g.cfg.Heads, Context: g.cfg.Context, Layers: g.cfg.Layers,
			module: model, x: symbols(g.cfg, g.sequences)})
	}
	return cases
}

// shake moves a model away from its initial values, where biases are 0 and attention is nearly uniform.
func shake(m Module, r Source) {
	for _, p := range m.Params() {
		noise := make([]float32, len(p.Value))
		normal(noise, 1/math.Sqrt(float64(p.Shape[len(p.Shape)-1])), r)
		for i, v := range noise {
			p.Value[i] += v
		}
	}
}
