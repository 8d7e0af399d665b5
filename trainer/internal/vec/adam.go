package vec

import "math"

// AdamStep is what all elements share in a step of Adam. Callers compute it in float64, as PyTorch does, from the
// learning rate lr, the betas, the weight decay and the number t of this step, from 1 on.
type AdamStep struct {
	Shrink   float32 // of AdamW: 1 - lr decay; else 1
	Decay    float32 // of Adam: the weight decay, which is added to the gradient; else 0
	Beta1    float32
	Beta2    float32
	Rest1    float32 // 1 - beta1
	Rest2    float32 // 1 - beta2
	StepSize float32 // lr / (1 - beta1^t)
	Root     float32 // sqrt(1 - beta2^t)
	Eps      float32
}

// Adam is one step of torch.optim.Adam or AdamW for the parameter w with gradient g, m the mean of gradients
// (exp_avg) and v that of their squares (exp_avg_sq):
//
//	w = Shrink w
//	g = g + Decay w          if Decay is not 0; g itself is not written
//	m = Beta1 m + Rest1 g
//	v = Beta2 v + Rest2 g g
//	w = w - StepSize m / (sqrt(v) / Root + Eps)
//
// Operations are done from left to right, each rounded.
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
