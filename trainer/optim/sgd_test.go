package optim

import (
	"math"
	"slices"
	"strings"
	"testing"

	"ddpbatch/trainer/nn"
)

func param(values ...float32) *nn.Param {
	return &nn.Param{Name: "0.weight", Shape: []int{len(values)}, Value: values, Grad: make([]float32, len(values))}
}

// Three steps by hand, in numbers that float32 holds exactly.
func TestSGDByHand(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  SGDConfig
		want []float32 // the value after each step, from 1, with gradients 2, 4, -2
	}{
		{"plain", SGDConfig{LR: 0.5}, []float32{0, -2, -1}},
		// Velocities: 2; 1 + 4 = 5; 2.5 - 2 = 0.5.
		{"momentum", SGDConfig{LR: 0.5, Momentum: 0.5}, []float32{0, -2.5, -2.75}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := param(1)
			s, err := NewSGD([]*nn.Param{p}, c.cfg)
			if err != nil {
				t.Fatal(err)
			}
			for i, g := range []float32{2, 4, -2} {
				p.Grad[0] = g
				s.Step()
				if p.Value[0] != c.want[i] {
					t.Fatalf("after step %d the value is %g, want %g", i+1, p.Value[0], c.want[i])
				}
			}
		})
	}
}

func TestStateRestoresTheOptimizer(t *testing.T) {
	cfg := SGDConfig{LR: 0.1, Momentum: 0.9}
	a := param(1, 2, 3)
	first, err := NewSGD([]*nn.Param{a}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	steps := func(s *SGD, p *nn.Param, from, to int) {
		for i := from; i < to; i++ {
			for j := range p.Grad {
				p.Grad[j] = float32(math.Sin(float64(i*3 + j)))
			}
			s.Step()
		}
	}
	steps(first, a, 0, 5)

	b := param(slices.Clone(a.Value)...)
	second, err := NewSGD([]*nn.Param{b}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	for i, slot := range first.State() {
		if slot.Name != "momentum_buffer.0.weight" || !slices.Equal(slot.Shape, []int{3}) {
			t.Errorf("slot %d is %s %v", i, slot.Name, slot.Shape)
		}
		copy(second.State()[i].Value, slot.Value)
	}
	steps(first, a, 5, 9)
	steps(second, b, 5, 9)
	if !slices.Equal(a.Value, b.Value) {
		t.Errorf("restored: %v, never stopped: %v", b.Value, a.Value)
	}
}

func TestNoStateWithoutMomentum(t *testing.T) {
	s, err := NewSGD([]*nn.Param{param(1)}, SGDConfig{LR: 1})
	if err != nil || len(s.State()) != 0 {
		t.Errorf("state %v, error %v; want none", s.State(), err)
	}
}

func TestBadSettings(t *testing.T) {
	for _, c := range []struct {
		cfg  SGDConfig
		want string
	}{
		{SGDConfig{LR: 0}, "learning rate"},
		{SGDConfig{LR: -1}, "learning rate"},
		{SGDConfig{LR: math.NaN()}, "learning rate"},
		{SGDConfig{LR: math.Inf(1)}, "learning rate"},
		{SGDConfig{LR: 1, Momentum: 1}, "momentum"},
		{SGDConfig{LR: 1, Momentum: -0.1}, "momentum"},
		{SGDConfig{LR: 1, Momentum: math.NaN()}, "momentum"},
	} {
		if _, err := NewSGD(nil, c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: error %v, want one about the %s", c.cfg, err, c.want)
		}
	}
}

func BenchmarkSGD(b *testing.B) {
	p := param(make([]float32, 784*128)...)
	for _, momentum := range []float64{0, 0.9} {
		b.Run(map[bool]string{true: "momentum", false: "plain"}[momentum > 0], func(b *testing.B) {
			s, err := NewSGD([]*nn.Param{p}, SGDConfig{LR: 0.1, Momentum: momentum})
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(4 * len(p.Value)))
			b.ReportAllocs()
			for b.Loop() {
				s.Step()
			}
		})
	}
}
