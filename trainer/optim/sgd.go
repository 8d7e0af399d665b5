package optim

import (
	"fmt"
	"math"

	"ddpbatch/trainer/nn"
)

// SGDConfig is what torch.optim.SGD calls lr and momentum.
type SGDConfig struct {
	LR       float64 // above 0
	Momentum float64 // in [0, 1); 0: plain gradient descent, without state
}

// Slot is one named array of an optimizer's state. It has the shape of the
// parameter that it belongs to.
type Slot struct {
	Name  string // "momentum_buffer.0.weight": PyTorch's name of the state, then the parameter's
	Shape []int
	Value []float32 // the optimizer's own memory: copy from it to save, into it to restore
}

// SGD is stochastic gradient descent with momentum, as torch.optim.SGD without dampening and
// weight decay: for each parameter p with gradient g and velocity v,
//
//	v = momentum v + g
//	p = p - lr v
//
// The velocity starts at zero, so that it is g after the first step.
type SGD struct {
	params       []*nn.Param
	lr, momentum float32
	slots        []Slot // one for each parameter, or none
}

// NewSGD returns an optimizer of params, which it refers to from then on.
func NewSGD(params []*nn.Param, cfg SGDConfig) (*SGD, error) {
	if !(cfg.LR > 0) || math.IsInf(cfg.LR, 0) {
		return nil, fmt.Errorf("sgd: the learning rate is %v, want a number above 0", cfg.LR)
	}
	if !(cfg.Momentum >= 0 && cfg.Momentum < 1) {
		return nil, fmt.Errorf("sgd: the momentum is %v, want 0 <= momentum < 1", cfg.Momentum)
	}
	s := &SGD{params: params, lr: float32(cfg.LR), momentum: float32(cfg.Momentum)}
	if s.momentum == 0 {
		return s, nil
	}
	for _, p := range params {
		s.slots = append(s.slots, Slot{
			Name:  "momentum_buffer." + p.Name,
			Shape: p.Shape,
			Value: make([]float32, len(p.Value)),
		})
	}
	return s, nil
}

// State returns the velocities in the order of the parameters; none without
// momentum.
func (s *SGD) State() []Slot { return s.slots }

// Step changes all parameters by one step. Every product is rounded before it is
// added (a conversion forbids fusing), so that all machines get the same bits.
func (s *SGD) Step() {
	for i, p := range s.params {
		value, step := p.Value, p.Grad
		if s.slots != nil {
			step = s.slots[i].Value
			for j, g := range p.Grad {
				step[j] = float32(s.momentum*step[j]) + g
			}
		}
		for j, v := range step {
			value[j] -= float32(s.lr * v)
		}
	}
}
