package optim

import (
	"ddpbatch/trainer/internal/vec"
	"ddpbatch/trainer/nn"
)

// sgd is torch.optim.SGD: for each parameter w with gradient g and velocity v,
//
//	g = g + decay w
//	v = momentum v + (1 - dampening) g     the first time: v = g, undampened
//	g = g + momentum v, with Nesterov's momentum; else g = v
//	w = w - lr g
type sgd struct {
	params              []*nn.Param
	lr, momentum, decay float32
	rest                float32 // 1 - dampening
	nesterov            bool
	velocity            []Slot // one for each parameter, or none
	begun               []Slot // with dampening, one for each parameter: 1 once it has a velocity
	state               []Slot // all of them
}

func newSGD(params []*nn.Param, cfg Config) *sgd {
	s := &sgd{
		params: params, lr: float32(cfg.LR), momentum: float32(cfg.Momentum), rest: float32(1 - cfg.Dampening),
		decay: float32(cfg.WeightDecay), nesterov: cfg.Nesterov,
	}
	if s.momentum == 0 {
		return s
	}
	for _, p := range params {
		v := slotLike("momentum_buffer", p)
		s.velocity, s.state = append(s.velocity, v), append(s.state, v)
		if cfg.Dampening != 0 {
			b := counter("momentum_begun." + p.Name)
			s.begun, s.state = append(s.begun, b), append(s.state, b)
		}
	}
	return s
}

func (s *sgd) SetLR(lr float64) { s.lr = float32(lr) }

// State returns the velocities. With dampening it adds a number for each, which PyTorch need not save: there a
// velocity that is not in the file has not begun.
func (s *sgd) State() []Slot { return s.state }

func (s *sgd) Step() {
	for i, p := range s.params {
		if !p.HasGrad {
			continue
		}
		var velocity []float32
		if s.velocity != nil {
			velocity = s.velocity[i].Value
		}
		vec.SGD(p.Value, p.Grad, velocity, s.lr, s.momentum, s.restOf(i), s.decay, s.nesterov)
	}
}

// restOf returns what is left of the gradient of parameter i in this step after dampening. A velocity begins as 0, so
// with all of it the velocity becomes g.
func (s *sgd) restOf(i int) float32 {
	if s.begun == nil {
		return 1
	}
	if begun := &s.begun[i].Value[0]; *begun == 0 {
		*begun = 1
		return 1
	}
	return s.rest
}
