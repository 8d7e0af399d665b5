package optim

import (
	"ddpbatch/trainer/internal/vec"
	"ddpbatch/trainer/nn"
)

// SquaredNorm returns the sum of the squares of all gradients, taken in float64, so that no finite gradient
// overflows it, with the same bits on all machines. Parameters without a gradient do not count, and one that is listed
// twice counts once. Ranks that hold different parameters add up their squared norms, then take the root.
func SquaredNorm(params []*nn.Param) float64 {
	var sum float64
	for p := range nn.Distinct(params) {
		if p.HasGrad {
			sum += vec.SumSquares(p.Grad)
		}
	}
	return sum
}

// ClipGradNorm scales all gradients, whose norm as one vector is norm, so that it becomes at most maxNorm:
// torch.nn.utils.clip_grad_norm_, with maxNorm above 0. One that is listed twice is scaled once. As in PyTorch, a norm
// of Inf leaves zeros and NaN, and a norm of NaN makes all NaN: neither looks like a gradient that can be used.
func ClipGradNorm(params []*nn.Param, maxNorm, norm float64) {
	scale := float32(maxNorm / (norm + 1e-6))
	if scale >= 1 {
		return
	}
	scaleGrads(params, scale)
}

func scaleGrads(params []*nn.Param, scale float32) {
	for p := range nn.Distinct(params) {
		if p.HasGrad {
			vec.Scale(p.Grad, scale)
		}
	}
}
