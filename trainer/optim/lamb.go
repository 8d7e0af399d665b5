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

// direction takes the gradient into the moments and returns u.
func (l *lamb) direction(p *nn.Param, s *moments) []float32 {
	b1, b2 := s.next(l.cfg.Beta1, l.cfg.Beta2)
	bias1, root2 := float32(b1), float32(math.Sqrt(b2))
	beta1, rest1 := float32(l.cfg.Beta1), float32(1-l.cfg.Beta1)
	beta2, rest2 := float32(l.cfg.Beta2), float32(1-l.cfg.Beta2)
	eps, decay := float32(l.cfg.Eps), float32(l.cfg.WeightDecay)

	u, w, m, v := l.update[:len(p.Grad)], p.Value, s.mean.Value, s.square.Value
	for j, g := range p.Grad {
		m[j] = float32(beta1*m[j]) + float32(rest1*g)
		v[j] = float32(beta2*v[j]) + float32(float32(rest2*g)*g)
		root := float32(math.Sqrt(float64(v[j]))) / root2
		u[j] = m[j]/bias1/(root+eps) + float32(decay*w[j])
	}
	return u
}

func trustRatio(w, u []float32) float64 {
	wNorm, uNorm := math.Sqrt(vec.SumSquares(w)), math.Sqrt(vec.SumSquares(u))
	if wNorm == 0 || uNorm == 0 {
		return 1
	}
	return wNorm / uNorm
}
