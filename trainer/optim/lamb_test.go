package optim

import (
	"math"
	"testing"
)

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

// The same steps in float32 differ by a few roundings of 2^-24 each step, which the ratio of norms, near 1, hardly
// enlarges: ten of them in each of 50 steps.
const lambTolerance = 500 * 0x1p-24

func TestLAMBAgainstFloat64(t *testing.T) {
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

// The point of LAMB: a step's length is the learning rate times the parameter's norm, whatever the size of the
// gradient, down to the smallest and up to the largest that v holds.
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

func TestLAMBWithZeroGradient(t *testing.T) {
	p := param("w", 3, 4)
	opt := mustNew(t, Config{Kind: "lamb", LR: 0.1, Beta1: 0.9, Beta2: 0.999, Eps: 1e-6}, p)
	opt.Step()
	if p.Value[0] != 3 || p.Value[1] != 4 {
		t.Errorf("values %v, want them as they were", p.Value)
	}
}
