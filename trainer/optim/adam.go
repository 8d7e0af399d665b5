package optim

import (
	"math"

	"ddpbatch/trainer/internal/vec"
	"ddpbatch/trainer/nn"
)

// adam is torch.optim.Adam, or AdamW, which shrinks parameters instead of adding their decay to the gradient: for
// each parameter w with gradient g, in its t-th step,
//
//	w = w - lr decay w                       AdamW
//	g = g + decay w                          Adam
//	m = beta1 m + (1 - beta1) g
//	v = beta2 v + (1 - beta2) g g
//	w = w - lr / (1 - beta1^t) m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
type adam struct {
	params []*nn.Param
	cfg    Config
	states []moments
	slots  []Slot
}

func newAdam(params []*nn.Param, cfg Config) *adam {
	a := &adam{params: params, cfg: cfg}
	a.states, a.slots = newMoments(params)
	return a
}

func (a *adam) SetLR(lr float64) { a.cfg.LR = lr }

func (a *adam) State() []Slot { return a.slots }

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
