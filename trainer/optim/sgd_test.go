package optim

import (
	"testing"

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

// Three steps by hand, in numbers that float32 holds exactly.
func TestSGDByHand(t *testing.T) {
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

func TestNoStateWithoutMomentum(t *testing.T) {
	if state := mustNew(t, Config{Kind: "sgd", LR: 1}, param("w", 1)).State(); len(state) != 0 {
		t.Errorf("state %v, want none", state)
	}
}
