package optim

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/gonum/mathext/prng"

	"ddpbatch/internal/testkit/golden"
	"ddpbatch/internal/testkit/torch"
	"ddpbatch/trainer/nn"
)

func param(name string, values ...float32) *nn.Param {
	return &nn.Param{Name: name, Shape: []int{len(values)}, Value: values, Grad: make([]float32, len(values)), HasGrad: true}
}

func mustNew(t testing.TB, cfg Config, params ...*nn.Param) Optimizer {
	t.Helper()
	opt, err := New(params, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return opt
}

// Three steps of SGD have the values computed by hand, in numbers that float32 holds exactly.
func TestSGDStepsAreThoseByHand(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  Config
		want []float32 // the value after each step, from 1, with gradients 2, 4, -2
	}{
		{"plain", Config{LR: 0.5}, []float32{0, -2, -1}},
		// Velocities: 2; 1 + 4 = 5; 2.5 - 2 = 0.5.
		{"momentum", Config{LR: 0.5, Momentum: 0.5}, []float32{0, -2.5, -2.75}},
		// Steps: 2 + 1 = 3; 4 + 2.5 = 6.5; -2 + 0.25 = -1.75.
		{"nesterov", Config{LR: 0.5, Momentum: 0.5, Nesterov: true}, []float32{-0.5, -3.75, -2.875}},
		// Velocities: 2, undampened; 1 + 1 = 2; 1 - 0.5 = 0.5.
		{"dampening", Config{LR: 0.5, Momentum: 0.5, Dampening: 0.75}, []float32{0, -1, -1.25}},
		// Gradients: 2 + 0.5 = 2.5; 4 - 0.125 = 3.875; -2 - 1.09375 = -3.09375.
		{"decay", Config{LR: 0.5, WeightDecay: 0.5}, []float32{-0.25, -2.1875, -0.640625}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := param("0.weight", 1)
			c.cfg.Kind = "sgd"
			opt := mustNew(t, c.cfg, p)
			for i, g := range []float32{2, 4, -2} {
				p.Grad[0] = g
				opt.Step()
				if p.Value[0] != c.want[i] {
					t.Fatalf("after step %d the value is %g, want %g", i+1, p.Value[0], c.want[i])
				}
			}
		})
	}
}

// 1 - dampening is rounded once. From a rounded 0.9 it would be 0.10000002.
func TestDampeningIsRoundedOnce(t *testing.T) {
	p := param("w", 0)
	opt := mustNew(t, Config{Kind: "sgd", LR: 1, Momentum: 0.5, Dampening: 0.9}, p)
	opt.Step() // with gradient 0
	p.Grad[0] = 1
	opt.Step()
	if p.Value[0] != -0.1 {
		t.Errorf("value %v, want -0.1", p.Value[0])
	}
}

func TestSGDWithoutMomentumHasNoState(t *testing.T) {
	if state := mustNew(t, Config{Kind: "sgd", LR: 1}, param("w", 1)).State(); len(state) != 0 {
		t.Errorf("state %v, want none", state)
	}
}

// exactLAMB is algorithm 2 of the paper in float64, for one parameter.
type exactLAMB struct {
	cfg     Config
	step    float64
	w, m, v []float64
}

func (e *exactLAMB) take(lr float64, grad []float32) {
	e.step++
	u := make([]float64, len(e.w))
	var ww, uu float64
	for i, w := range e.w {
		g := float64(grad[i])
		e.m[i] = e.cfg.Beta1*e.m[i] + (1-e.cfg.Beta1)*g
		e.v[i] = e.cfg.Beta2*e.v[i] + (1-e.cfg.Beta2)*g*g
		m := e.m[i] / (1 - math.Pow(e.cfg.Beta1, e.step))
		v := e.v[i] / (1 - math.Pow(e.cfg.Beta2, e.step))
		u[i] = m/(math.Sqrt(v)+e.cfg.Eps) + e.cfg.WeightDecay*w
		ww += w * w
		uu += u[i] * u[i]
	}
	ratio := 1.0
	if ww > 0 && uu > 0 {
		ratio = math.Sqrt(ww) / math.Sqrt(uu)
	}
	for i := range e.w {
		e.w[i] -= lr * ratio * u[i]
	}
}

// lambTolerance allows ten roundings of 2^-24 in each of 50 steps. The steps in float32 differ from those in float64
// by a few roundings each, which the ratio of norms, near 1, hardly enlarges.
const lambTolerance = 500 * 0x1p-24

func TestLAMBIsNearFloat64(t *testing.T) {
	for _, cfg := range []Config{
		Default("lamb"),
		{Kind: "lamb", LR: 1, Beta1: 0.5, Beta2: 0.75, Eps: 1e-2},
		{Kind: "lamb", LR: 1, Beta1: 0, Beta2: 0.99, Eps: 1e-6, WeightDecay: 0.3},
	} {
		s := randomSteps(50)
		clear(s.init[:sizeOf(s.Shapes[0])]) // a parameter of zeros has the ratio 1 in its first step
		params := s.params()
		opt := mustNew(t, cfg, params...)
		var exact []*exactLAMB
		for _, p := range params {
			e := &exactLAMB{cfg: cfg, m: make([]float64, len(p.Value)), v: make([]float64, len(p.Value))}
			for _, v := range p.Value {
				e.w = append(e.w, float64(v))
			}
			exact = append(exact, e)
		}
		for step, lr := range s.LRs {
			s.step(opt, params, step)
			for i, p := range params {
				if p.HasGrad {
					exact[i].take(lr, p.Grad)
				}
				want := make([]float32, len(p.Value))
				for j, v := range exact[i].w {
					want[j] = float32(v)
				}
				if worst := worstError(p.Value, want); !(worst <= lambTolerance) {
					t.Fatalf("%+v: %s after step %d differs by %g, want at most %g", cfg, p.Name, step, worst, lambTolerance)
				}
			}
		}
	}
}

// The length of a LAMB step is the learning rate times the parameter's norm, whatever the size of the
// gradient, from the smallest to the largest whose square v can hold.
func TestLAMBStepsByTheParametersNorm(t *testing.T) {
	for _, size := range []float32{1e-12, 1e-3, 1, 1e15} {
		p := param("w", 3, 4) // of norm 5
		opt := mustNew(t, Config{Kind: "lamb", LR: 0.1, Beta1: 0.9, Beta2: 0.999, Eps: 1e-30}, p)
		p.Grad[0], p.Grad[1] = size, -size
		opt.Step()
		moved := math.Hypot(float64(p.Value[0])-3, float64(p.Value[1])-4)
		if math.Abs(moved-0.5) > 1e-5 { // float32 values near 4 are 2.4e-7 apart
			t.Errorf("gradient %g: moved by %g, want 0.5", size, moved)
		}
	}
}

func TestLAMBWithZeroGradientMovesNothing(t *testing.T) {
	p := param("w", 3, 4)
	opt := mustNew(t, Config{Kind: "lamb", LR: 0.1, Beta1: 0.9, Beta2: 0.999, Eps: 1e-6}, p)
	opt.Step()
	if p.Value[0] != 3 || p.Value[1] != 4 {
		t.Errorf("values %v, want them as they were", p.Value)
	}
}

func closeTo(t *testing.T, what string, got, want []float32) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d values, want %d", what, len(got), len(want))
	}
	for i := range want {
		if math.Abs(float64(got[i])-float64(want[i])) > golden.Tolerance {
			t.Errorf("%s: value %d is %v, PyTorch has %v", what, i, got[i], want[i])
		}
	}
}

// rows returns the rows [first, first+n) of table.
func rows(table [][]float32, first, n int) nn.Matrix {
	return nn.Matrix{Rows: n, Cols: len(table[0]), Data: slices.Concat(table[first : first+n]...)}
}

// Training gives PyTorch's values within golden.Tolerance. PyTorch adds up products in another order, and its SGD fuses multiplication
// and addition.
func TestTrainingIsPyTorchsGolden(t *testing.T) {
	for _, world := range []int{1, 2} {
		t.Run(fmt.Sprintf("world %d", world), func(t *testing.T) { replay(t, golden.Read(t, world), world) })
	}
}

// replay trains as g did after torch.manual_seed(1), one rank after another, and compares all that g recorded.
func replay(t *testing.T, g golden.Training, world int) {
	src := prng.NewMT19937()
	src.Seed(1)
	model := nn.NewSequential(nn.NewLinear(4, 8, src), nn.NewReLU(), nn.NewLinear(8, 3, src))
	params := model.Params()
	for i, p := range params {
		if !slices.Equal(p.Shape, g.Init[i].Shape) || !slices.Equal(p.Value, g.Init[i].Data) {
			t.Fatalf("initial %s is %v %v, PyTorch has %v %v", p.Name, p.Shape, p.Value, g.Init[i].Shape, g.Init[i].Data)
		}
	}
	sgd, err := New(params, Config{Kind: "sgd", LR: 0.1, Momentum: 0.9})
	if err != nil {
		t.Fatal(err)
	}
	pass := nn.Pass{Training: true}
	var loss nn.MSE
	batch := 8 / world
	for s, step := range g.Steps {
		nn.ZeroGrad(params)
		for rank := range world {
			first := 8*s + rank*batch
			value, dy := loss.Loss(model.Forward(&pass, rows(g.X, first, batch)), rows(g.Y, first, batch))
			if math.Abs(value-step.Losses[rank]) > golden.Tolerance {
				t.Errorf("step %d rank %d: loss %v, PyTorch has %v", s, rank, value, step.Losses[rank])
			}
			model.Backward(&pass, dy, false) // adds up over the ranks
		}
		for _, p := range params {
			for i := range p.Grad {
				p.Grad[i] /= float32(world)
			}
		}
		for i, want := range step.Grads {
			closeTo(t, "gradient of "+params[i].Name, params[i].Grad, want)
		}
		sgd.Step()
	}
	for i, p := range params {
		closeTo(t, "final "+p.Name, p.Value, g.Final[i].Data)
	}
}

//go:embed testdata/optimizers.py
var optimizersScript string

// torchCase is an optimizer of this package and the same one of PyTorch, given by its class and arguments.
type torchCase struct {
	cfg   Config
	Class string
	Args  map[string]any
}

func torchCases() []torchCase {
	var cases []torchCase
	add := func(class string, cfg Config, args map[string]any) {
		cfg.LR = 1
		cases = append(cases, torchCase{cfg: cfg, Class: class, Args: args})
	}
	for _, decay := range []float64{0, 0.03} {
		for _, momentum := range []float64{0, 0.9} {
			for _, dampening := range []float64{0, 0.3, 0.9} {
				for _, nesterov := range []bool{false, true} {
					if momentum == 0 && (dampening > 0 || nesterov) || nesterov && dampening > 0 {
						continue // New refuses these
					}
					cfg := Config{Kind: "sgd", WeightDecay: decay, Momentum: momentum, Dampening: dampening, Nesterov: nesterov}
					add("SGD", cfg, map[string]any{
						"weight_decay": decay, "momentum": momentum, "dampening": dampening, "nesterov": nesterov,
					})
				}
			}
		}
		for _, betas := range [][]float64{{0.9, 0.999}, {0.5, 0.75}, {0, 0.99}, {0, 0}} {
			for _, eps := range []float64{1e-8, 1e-2} {
				args := map[string]any{"weight_decay": decay, "betas": betas, "eps": eps}
				cfg := Config{WeightDecay: decay, Beta1: betas[0], Beta2: betas[1], Eps: eps}
				cfg.Kind = "adam"
				add("Adam", cfg, args)
				cfg.Kind = "adamw"
				add("AdamW", cfg, args)
			}
		}
	}
	return cases
}

// steps is the input of a training run: gradients, learning rates, and which parameters have a gradient.
type steps struct {
	Shapes [][]int
	LRs    []float64
	Has    [][]bool
	Cases  []torchCase
	init   []float32
	grads  []float32 // a row for each step
}

// randomSteps draws gradients of very different sizes. Some elements are 0 in all steps. The last parameter never has
// a gradient, and the others lack one in some steps, including the first.
func randomSteps(n int) steps {
	r := rand.New(rand.NewPCG(1, 2))
	// The lengths are around those of CPU vectors, and one parameter is a scalar.
	s := steps{Shapes: [][]int{{5, 13}, {64}, {}, {7}, {3, 1, 2}}}
	size := 0
	for _, shape := range s.Shapes {
		size += sizeOf(shape)
	}
	scale := make([]float32, size)
	for i := range scale {
		s.init = append(s.init, float32(r.NormFloat64()))
		scale[i] = float32(math.Pow(10, 4*r.Float64()-3))
		if i%11 == 5 {
			scale[i] = 0
		}
	}
	for range n {
		for _, x := range scale {
			s.grads = append(s.grads, x*float32(r.NormFloat64()))
		}
		s.LRs = append(s.LRs, 0.1*r.Float64())
		s.Has = append(s.Has, []bool{r.IntN(4) > 0, r.IntN(4) > 0, r.IntN(4) > 0, r.IntN(4) > 0, false})
	}
	s.Has[0] = []bool{true, false, true, false, false}
	return s
}

func sizeOf(shape []int) int {
	size := 1
	for _, n := range shape {
		size *= n
	}
	return size
}

// params returns fresh parameters with the initial values.
func (s *steps) params() []*nn.Param {
	var params []*nn.Param
	first := 0
	for i, shape := range s.Shapes {
		size := sizeOf(shape)
		params = append(params, &nn.Param{
			Name: fmt.Sprintf("%d.weight", i), Shape: shape,
			Value: append([]float32(nil), s.init[first:first+size]...), Grad: make([]float32, size),
		})
		first += size
	}
	return params
}

// step gives params the gradients of step t and takes it.
func (s *steps) step(opt Optimizer, params []*nn.Param, t int) {
	grads := s.grads[t*len(s.init):]
	for i, p := range params {
		p.HasGrad = s.Has[t][i]
		copy(p.Grad, grads)
		grads = grads[len(p.Grad):]
	}
	opt.SetLR(s.LRs[t])
	opt.Step()
}

// PyTorch's portable kernels compute the same as ours, in the same order, and round each operation, so the bits are
// equal. Its AVX2 kernels fuse products into sums. That omits up to four roundings in a step, of half a unit in the
// last place, 2^-24, each, of numbers no larger than the parameter and its change. The roundings go either way, so a
// difference of 50 units after 50 steps is very unlikely. The worst seen was 23.
func TestOptimizersEqualPyTorchs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, kernels string
		units         float64 // of 2^-24
	}{{"portable kernels", "default", 0}, {"fused kernels", "", 50}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if c.units == 0 && runtime.GOARCH != "amd64" {
				t.Skipf("PyTorch's portable kernels for %s may fuse products into sums", runtime.GOARCH)
			}
			compareOptimizers(t, c.kernels, c.units*0x1p-24)
		})
	}
}

func compareOptimizers(t *testing.T, kernels string, tolerance float64) {
	dir := t.TempDir()
	s := randomSteps(50)
	s.Cases = torchCases()
	spec, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "spec.json"), spec, 0o600); err != nil {
		t.Fatal(err)
	}
	torch.WriteFloats(t, filepath.Join(dir, "init.f32"), s.init)
	torch.WriteFloats(t, filepath.Join(dir, "grads.f32"), s.grads)
	torch.Run(t, optimizersScript, dir, kernels)

	for i, c := range s.Cases {
		want := torch.ReadFloats(t, filepath.Join(dir, fmt.Sprintf("case%d.f32", i)))
		params := s.params()
		opt, err := New(params, c.cfg)
		if err != nil {
			t.Fatal(err)
		}
		compare := func(what string, got []float32) {
			if worst := worstError(got, want[:len(got)]); !(worst <= tolerance) {
				t.Fatalf("%+v: %s differs from PyTorch's by %g of its size, want at most %g", c.cfg, what, worst, tolerance)
			}
			want = want[len(got):]
		}
		for step := range s.LRs {
			s.step(opt, params, step)
			for _, p := range params {
				compare(fmt.Sprintf("%s after step %d", p.Name, step), p.Value)
			}
		}
		for _, slot := range opt.State() {
			if strings.HasPrefix(slot.Name, "momentum_begun.") {
				continue // PyTorch's velocity is None instead
			}
			compare(slot.Name, slot.Value)
		}
		if opt.State() != nil && len(want) != 0 {
			t.Fatalf("%+v: PyTorch has %d numbers more", c.cfg, len(want))
		}
	}
}

// worstError returns the largest difference relative to the largest of 1 and the wanted value.
func worstError(got, want []float32) float64 {
	var worst float64
	for i, w := range want {
		d := math.Abs(float64(got[i]) - float64(w))
		if math.IsNaN(d) {
			return d
		}
		worst = max(worst, d/max(1, math.Abs(float64(w))))
	}
	return worst
}
