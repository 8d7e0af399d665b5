package vec

// SGD is one step of torch.optim.SGD for the parameter w with gradient g and momentum buffer v:
//
//	g = g + decay w                            if decay is not 0; g itself is not written
//	v = momentum v + rest g
//	w = w - lr v, or w - lr (g + momentum v)   the latter with nesterov
//
// rest is 1 - dampening, which PyTorch computes in float64. Without momentum v is nil, and w = w - lr g. PyTorch's first
// step sets v = g, without dampening: that is what v = 0 and rest 1 give.
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

// sgdStep is what all elements share. Assembly knows its layout.
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
