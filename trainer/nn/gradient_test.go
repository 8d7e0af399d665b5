package nn

import (
	"math"
	"math/rand/v2"
	"testing"
)

// Central differences with step h err by h² f”'/6, below 1e-4 for the functions here, and by the
// rounding of float32 outputs divided by h, below 5e-5. Both together stay below tolerance.
const (
	h         = 1.0 / 64
	tolerance = 1e-3
)

func source() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

// randomMatrix is away from zero by more than h, where ReLU has its kink.
func randomMatrix(r *rand.Rand, rows, cols int) Matrix {
	m := NewMatrix(rows, cols)
	for i := range m.Data {
		v := 0.1 + 0.9*r.Float32()
		if r.IntN(2) == 0 {
			v = -v
		}
		m.Data[i] = v
	}
	return m
}

// checkGradient compares grad, element by element, with central differences of f in x.
func checkGradient(t *testing.T, what string, x, grad []float32, f func() float64) {
	t.Helper()
	for i, v := range x {
		x[i] = v + h
		up := f()
		x[i] = v - h
		down := f()
		x[i] = v
		want := (up - down) / (2 * h)
		if math.Abs(want-float64(grad[i])) > tolerance {
			t.Errorf("%s: derivative %d is %g, differences say %g", what, i, grad[i], want)
		}
	}
}

func TestModuleGradients(t *testing.T) {
	modules := map[string]func(Source) Module{
		"linear": func(s Source) Module { return NewLinear(5, 3, s) },
		"relu":   func(Source) Module { return NewReLU() },
		"tanh":   func(Source) Module { return NewTanh() },
		"sequential": func(s Source) Module {
			return NewSequential(NewLinear(5, 4, s), NewTanh(), NewSequential(NewLinear(4, 2, s), NewTanh()))
		},
	}
	for name, build := range modules {
		t.Run(name, func(t *testing.T) {
			r := source()
			module := build(r)
			var pass Pass
			x := randomMatrix(r, 4, 5)
			y := module.Forward(&pass, x)
			// The scalar that is differentiated is the sum of y weighted by dy.
			dy := randomMatrix(r, y.Rows, y.Cols)
			f := func() float64 {
				var sum float64
				for i, v := range module.Forward(&pass, x).Data {
					sum += float64(v) * float64(dy.Data[i])
				}
				return sum
			}
			dx := module.Backward(&pass, dy, true)
			checkGradient(t, "input", x.Data, append([]float32(nil), dx.Data...), f)
			for _, p := range module.Params() {
				checkGradient(t, p.Name, p.Value, p.Grad, f)
			}
		})
	}
}

func TestLossGradients(t *testing.T) {
	r := source()
	t.Run("mse", func(t *testing.T) {
		y, target := randomMatrix(r, 3, 4), randomMatrix(r, 3, 4)
		var loss MSE
		_, grad := loss.Loss(y, target)
		checkGradient(t, "y", y.Data, append([]float32(nil), grad.Data...), func() float64 {
			v, _ := loss.Loss(y, target)
			return v
		})
	})
	t.Run("cross entropy", func(t *testing.T) {
		logits, labels := randomMatrix(r, 3, 4), []int{2, 0, 3}
		var loss CrossEntropy
		_, grad := loss.Loss(logits, labels)
		checkGradient(t, "logits", logits.Data, append([]float32(nil), grad.Data...), func() float64 {
			v, _ := loss.Loss(logits, labels)
			return v
		})
	})
}

func TestBackwardAccumulatesAndSkipsTheInput(t *testing.T) {
	r := source()
	l := NewSequential(NewLinear(3, 2, r), NewReLU())
	var pass Pass
	x := randomMatrix(r, 4, 3)
	dy := randomMatrix(r, 4, 2)
	l.Forward(&pass, x)
	if dx := l.Backward(&pass, dy, false); dx.Data != nil {
		t.Errorf("Backward without the input's gradient returned %v", dx)
	}
	once := append([]float32(nil), l.Params()[0].Grad...)
	l.Forward(&pass, x)
	l.Backward(&pass, dy, true)
	for i, g := range l.Params()[0].Grad {
		// The second sum starts from the first: it is rounded otherwise.
		if math.Abs(float64(g-2*once[i])) > 1e-6 {
			t.Fatalf("gradient %d is %g after two calls, want twice %g", i, g, once[i])
		}
	}
	ZeroGrad(l.Params())
	for _, p := range l.Params() {
		if p.HasGrad {
			t.Errorf("%s has a gradient after ZeroGrad", p.Name)
		}
		for i, g := range p.Grad {
			if g != 0 {
				t.Fatalf("%s: gradient %d is %g after ZeroGrad", p.Name, i, g)
			}
		}
	}
}
