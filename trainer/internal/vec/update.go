package vec

import "math"

// SGD computes one step of torch.optim.SGD for the parameter w with gradient g and momentum buffer v:
//
//	g = g + decay w                            if decay is not 0; g itself is not written
//	v = momentum v + rest g
//	w = w - lr v, or w - lr (g + momentum v)   the latter with nesterov
//
// rest is 1 - dampening, which PyTorch computes in float64. Without momentum v is nil, and w = w - lr g. PyTorch's first
// step sets v = g, without dampening: v = 0 and rest = 1 give the same.
func SGD(w, g, v []float32, lr, momentum, rest, decay float32, nesterov bool) {
	if len(g) != len(w) || v != nil && len(v) != len(w) {
		panic(badLength)
	}
	if v == nil {
		for len(w) > piece {
			best.sgd(w[:piece], g[:piece], lr, decay)
			w, g = w[piece:], g[piece:]
		}
		best.sgd(w, g, lr, decay)
		return
	}
	s := newSGDStep(lr, momentum, rest, decay, nesterov)
	for len(w) > piece {
		best.sgdMomentum(w[:piece], g[:piece], v[:piece], s)
		w, g, v = w[piece:], g[piece:], v[piece:]
	}
	best.sgdMomentum(w, g, v, s)
}

// sgdStep holds what all elements share. Assembly depends on its layout.
type sgdStep struct {
	lr, momentum, rest, decay float32
	nesterov                  uint32 // all bits set, or none
}

func newSGDStep(lr, momentum, rest, decay float32, nesterov bool) sgdStep {
	s := sgdStep{lr: lr, momentum: momentum, rest: rest, decay: decay}
	if nesterov {
		s.nesterov = ^uint32(0)
	}
	return s
}

func sgd(w, g []float32, lr, decay float32) {
	for i, step := range g {
		if decay != 0 {
			step += float32(decay * w[i])
		}
		w[i] -= float32(lr * step)
	}
}

func sgdMomentum(w, g, v []float32, s sgdStep) {
	for i, step := range g {
		if s.decay != 0 {
			step += float32(s.decay * w[i])
		}
		v[i] = float32(s.momentum*v[i]) + float32(s.rest*step)
		if s.nesterov != 0 {
			step += float32(s.momentum * v[i])
		} else {
			step = v[i]
		}
		w[i] -= float32(s.lr * step)
	}
}

// AdamStep holds what all elements share in a step of Adam. Callers compute it in float64, as PyTorch does, from the
// learning rate lr, the betas, the weight decay and the number t of this step, from 1.
type AdamStep struct {
	Shrink   float32 // for AdamW: 1 - lr decay; else 1
	Decay    float32 // for Adam: the weight decay, which is added to the gradient; else 0
	Beta1    float32
	Beta2    float32
	Rest1    float32 // 1 - beta1
	Rest2    float32 // 1 - beta2
	StepSize float32 // lr / (1 - beta1^t)
	Root     float32 // sqrt(1 - beta2^t)
	Eps      float32
}

// Adam computes one step of torch.optim.Adam or AdamW for the parameter w with gradient g, m the mean of gradients
// (exp_avg) and v that of their squares (exp_avg_sq):
//
//	w = Shrink w
//	g = g + Decay w          if Decay is not 0; g itself is not written
//	m = Beta1 m + Rest1 g
//	v = Beta2 v + Rest2 g g
//	w = w - StepSize m / (sqrt(v) / Root + Eps)
//
// Operations are done from left to right, and each is rounded.
func Adam(w, g, m, v []float32, s AdamStep) {
	if len(g) != len(w) || len(m) != len(w) || len(v) != len(w) {
		panic(badLength)
	}
	for len(w) > piece {
		best.adam(w[:piece], g[:piece], m[:piece], v[:piece], s)
		w, g, m, v = w[piece:], g[piece:], m[piece:], v[piece:]
	}
	best.adam(w, g, m, v, s)
}

func adam(w, g, m, v []float32, s AdamStep) {
	for i, grad := range g {
		value := s.Shrink * w[i]
		if s.Decay != 0 {
			grad += float32(s.Decay * value)
		}
		m[i] = float32(s.Beta1*m[i]) + float32(s.Rest1*grad)
		v[i] = float32(s.Beta2*v[i]) + float32(float32(s.Rest2*grad)*grad)
		root := float32(math.Sqrt(float64(v[i]))) // rounded once: float64 has more than twice the bits
		w[i] = value - float32(s.StepSize*m[i])/(root/s.Root+s.Eps)
	}
}
