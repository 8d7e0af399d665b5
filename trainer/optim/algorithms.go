package optim

import (
	"math"

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
	velocity            []Slot // one for each parameter, or none without momentum
	begun               []Slot // with dampening, one for each parameter: 1 once it has a velocity
	state               []Slot // velocity and begun
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

// State returns the velocities. With dampening it adds a number for each, which PyTorch does not have to save: there a
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

// restOf returns the factor of the gradient of parameter i in this step, after dampening. A velocity begins as 0, so
// with factor 1 the velocity becomes g.
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

// adam is torch.optim.Adam, or AdamW, which shrinks parameters instead of adding their decay to the gradient. For
// each parameter w with gradient g, in its t-th step,
//
//	w = w - lr decay w                       AdamW
//	g = g + decay w                          Adam
//	m = beta1 m + (1 - beta1) g
//	v = beta2 v + (1 - beta2) g g
//	w = w - lr / (1 - beta1^t) m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
type adam struct{ adaptive }

func (a *adam) Step() {
	c := &a.cfg
	step := vec.AdamStep{
		Shrink: 1,
		Beta1:  float32(c.Beta1), Rest1: float32(1 - c.Beta1),
		Beta2: float32(c.Beta2), Rest2: float32(1 - c.Beta2),
		Eps: float32(c.Eps),
	}
	if c.Kind == "adamw" {
		step.Shrink = float32(1 - float64(c.LR*c.WeightDecay))
	} else {
		step.Decay = float32(c.WeightDecay)
	}
	for i, p := range a.params {
		if !p.HasGrad {
			continue
		}
		s := &a.states[i]
		bias1, bias2 := s.next(c.Beta1, c.Beta2)
		step.StepSize, step.Root = float32(c.LR/bias1), float32(math.Sqrt(bias2))
		vec.Adam(p.Value, p.Grad, s.mean.Value, s.square.Value, step)
	}
}

// lamb is algorithm 2 of You et al., "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes"
// (arXiv 1904.00962). For each parameter w, which counts as one of the paper's layers,
//
//	m, v, a = Adam's moments of the gradient, and m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps)
//	u = a + decay w
//	w = w - lr |w| / |u| u
//
// with Adam's bias corrections, which the authors' own program leaves out; with the norm of w unchanged, where the paper
// allows clipping it (phi is the identity); and with the ratio 1 if one of the norms is 0. All parameters are treated
// in this way, including biases. Gradients are not clipped before; NVIDIA's FusedLAMB clips them to a norm of 1, which ClipGradNorm
// can do. Norms are computed in float64.
type lamb struct {
	adaptive
	update []float32 // u; as long as the largest parameter
}

func newLAMB(params []*nn.Param, cfg Config) *lamb {
	l := &lamb{adaptive: newAdaptive(params, cfg)}
	largest := 0
	for _, p := range params {
		largest = max(largest, len(p.Value))
	}
	l.update = make([]float32, largest)
	return l
}

func (l *lamb) Step() {
	for i, p := range l.params {
		if !p.HasGrad {
			continue
		}
		u := l.direction(p, &l.states[i])
		rate := float32(min(l.cfg.LR*trustRatio(p.Value, u), math.MaxFloat32))
		vec.Axpy(p.Value, -rate, u)
	}
}

// direction updates the moments with the gradient and returns u. It computes u as a step of Adam from decay w, with the learning rate
// -1.
func (l *lamb) direction(p *nn.Param, s *moments) []float32 {
	c := &l.cfg
	bias1, bias2 := s.next(c.Beta1, c.Beta2)
	u := l.update[:len(p.Value)]
	copy(u, p.Value)
	vec.Adam(u, p.Grad, s.mean.Value, s.square.Value, vec.AdamStep{
		Shrink: float32(c.WeightDecay),
		Beta1:  float32(c.Beta1), Rest1: float32(1 - c.Beta1),
		Beta2: float32(c.Beta2), Rest2: float32(1 - c.Beta2),
		StepSize: float32(-1 / bias1), Root: float32(math.Sqrt(bias2)), Eps: float32(c.Eps),
	})
	return u
}

func trustRatio(w, u []float32) float64 {
	wNorm, uNorm := math.Sqrt(vec.SumSquares(w)), math.Sqrt(vec.SumSquares(u))
	if wNorm == 0 || uNorm == 0 {
		return 1
	}
	return wNorm / uNorm
}

// moments is the state of one parameter in Adam's family.
type moments struct {
	step, mean, square Slot
}

// adaptive is the common part of Adam's family.
type adaptive struct {
	params []*nn.Param
	cfg    Config
	states []moments
	slots  []Slot // the slots of states
}

func newAdaptive(params []*nn.Param, cfg Config) adaptive {
	a := adaptive{params: params, cfg: cfg}
	for _, p := range params {
		m := moments{step: counter("step." + p.Name), mean: slotLike("exp_avg", p), square: slotLike("exp_avg_sq", p)}
		a.states, a.slots = append(a.states, m), append(a.slots, m.step, m.mean, m.square)
	}
	return a
}

func (a *adaptive) SetLR(lr float64) { a.cfg.LR = lr }

func (a *adaptive) State() []Slot { return a.slots }

// next counts a step and returns the bias corrections 1 - beta^step of both moments. Like PyTorch's, the count stops at 2^24, above
// which float32 cannot hold odd numbers: by then both are 1 in float32, unless a beta is above 1 - 1e-6.
func (m *moments) next(beta1, beta2 float64) (bias1, bias2 float64) {
	m.step.Value[0]++
	step := float64(m.step.Value[0])
	return 1 - math.Pow(beta1, step), 1 - math.Pow(beta2, step)
}
