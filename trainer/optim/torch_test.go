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
	"strings"
	"testing"

	"ddpbatch/internal/testkit/torch"
	"ddpbatch/trainer/nn"
)

//go:embed testdata/optimizers.py
var optimizersScript string

// torchCase is an optimizer here and, by its arguments, in PyTorch.
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
						continue // refused
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

// steps is a training's input: gradients, learning rates, and which parameters have a gradient.
type steps struct {
	Shapes [][]int
	LRs    []float64
	Has    [][]bool
	Cases  []torchCase
	init   []float32
	grads  []float32 // a row for each step
}

// randomSteps draws gradients of very different sizes, some elements 0 throughout. The last parameter never has a
// gradient, the others lack one in some steps, the first step among them.
func randomSteps(n int) steps {
	r := rand.New(rand.NewPCG(1, 2))
	// Lengths around those of vectors, and one scalar.
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

// PyTorch's portable kernels do what ours do, in the same order, each operation rounded: the same bits. Its AVX2
// kernels fuse products into sums. That spares roundings of half a unit in the last place, 2^-24, each: up to four
// in a step, of numbers not above the parameter and what moves it. They go either way, so over 50 steps 50 units
// are far out; the worst seen was 23.
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
