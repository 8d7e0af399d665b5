package optim

import (
	"math"

	"ddpbatch/trainer/internal/vec"
	"ddpbatch/trainer/nn"
)

// lamb is algorithm 2 of You et al., "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes"
// (arXiv 1904.00962). For each parameter w, as a whole one of the paper's layers,
//
//	m, v, a = Adam's moments of the gradient, and m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps)
//	u = a + decay w
//	w = w - lr |w| / |u| u
//
// with Adam's bias corrections, which the authors' own program leaves out; the norm of w as it is, where the paper
// allows to clip it (phi is the identity); and the ratio 1 where one of the norms is 0. All parameters are treated
// so, biases too. Gradients are not clipped before, as NVIDIA's FusedLAMB does to a norm of 1: ClipGradNorm does
// that. Norms are taken in float64.
type lamb struct {
	params []*nn.Param
	cfg    Config
	states []moments
	slots  []Slot
	update []float32 // u; of the largest parameter's length
}

func newLAMB(params []*nn.Param, cfg Config) *lamb {
	l := &lamb{params: params, cfg: cfg}
	l.states, l.slots = newMoments(params)
	largest := 0
	for _, p := range params {
		largest = max(largest, len(p.Value))
	}
	l.update = make([]float32, largest)
	return l
}

func (l *lamb) SetLR(lr float64) { l.cfg.LR = lr }

func (l *lamb) State() []Slot { return l.slots }

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

// direction takes the gradient into the moments and returns u. That is a step of Adam from decay w, at the learning rate
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
