package optim

import (
	"math"

	"ddpbatch/trainer/internal/vec"
	"ddpbatch/trainer/nn"
)

// SquaredNorm returns the sum of the squares of all gradients. It adds up in float64, so that no finite gradient
// overflows it, and gives the same bits on all machines. Parameters without a gradient are ignored, and one that is listed
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

// ClipGradNorm scales all gradients so that their norm as one vector becomes at most maxNorm, which must be above 0; norm is the present
// norm. It is torch.nn.utils.clip_grad_norm_. A gradient that is listed twice is scaled once. As in PyTorch, a norm
// of Inf leaves zeros and NaN, and a norm of NaN makes all NaN: neither looks like a usable gradient.
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

// The constants of torch.cuda.amp.GradScaler.
const (
	initialScale   = 1 << 16
	scaleGrowth    = 2
	scaleBackoff   = 0.5
	growthInterval = 2000
)

// smallestScale is the smallest normal float32. Its inverse is finite. A run that gets there
// has no usable gradients.
const smallestScale = 0x1p-126

// LossScaler is the dynamic loss scale of float16 training, like torch.cuda.amp.GradScaler: the loss is scaled up so
// that small gradients do not vanish in float16, and the gradients are scaled down again before the step.
//
//	backward from the loss's gradient times scaler.Scale()
//	finite := scaler.Unscale(params)
//	if finite { clip, step }
//	scaler.Update(finite)
//
// Ranks must agree on finite. They do if they hold the same reduced gradients; if each has
// other parameters they must reduce it. Then they have the same scale.
type LossScaler struct {
	scale, good Slot // good is the number of steps since the scale last changed
}

// NewLossScaler returns a LossScaler for the first step, with the scale 65536.
func NewLossScaler() *LossScaler {
	s := &LossScaler{scale: counter("loss_scaler.scale"), good: counter("loss_scaler.growth_tracker")}
	s.scale.Value[0] = initialScale
	return s
}

// Scale returns the factor for the loss of the next backward.
func (s *LossScaler) Scale() float32 { return s.scale.Value[0] }

// Unscale divides all gradients by the scale and reports whether they are finite: if not, the step must be skipped.
// The gradients must be complete, accumulated and reduced.
func (s *LossScaler) Unscale(params []*nn.Param) (finite bool) {
	finite = true
	for _, p := range params {
		finite = finite && (!p.HasGrad || vec.Finite(p.Grad))
	}
	scaleGrads(params, float32(1/float64(s.Scale())))
	return finite
}

// Update ends a step; finite says whether all gradients of all ranks were finite. An overflow halves the scale; 2000
// steps without one double it.
func (s *LossScaler) Update(finite bool) {
	scale, good := &s.scale.Value[0], &s.good.Value[0]
	if !finite {
		*scale, *good = max(*scale*scaleBackoff, smallestScale), 0
		return
	}
	if *good++; *good < growthInterval {
		return
	}
	if larger := *scale * scaleGrowth; larger <= math.MaxFloat32 {
		*scale = larger
	}
	*good = 0
}

// State returns the scale and the count of good steps, to be saved and restored like an Optimizer's state.
func (s *LossScaler) State() []Slot { return []Slot{s.scale, s.good} }
