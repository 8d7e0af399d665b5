package optim

import (
	"math"

	"ddpbatch/trainer/internal/vec"
	"ddpbatch/trainer/nn"
)

// The constants of torch.cuda.amp.GradScaler.
const (
	initialScale   = 1 << 16
	scaleGrowth    = 2
	scaleBackoff   = 0.5
	growthInterval = 2000
)

// smallestScale is the smallest normal float32. Its inverse is finite, and all gradients of a run that gets there
// are hopeless.
const smallestScale = 0x1p-126

// LossScaler is the dynamic loss scale of float16 training, as torch.cuda.amp.GradScaler: the loss is scaled up so
// that small gradients do not vanish in float16, and the gradients are scaled down again before the step.
//
//	backward from the loss's gradient times scaler.Scale()
//	finite := scaler.Unscale(params)
//	if finite { clip, step }
//	scaler.Update(finite)
//
// Ranks must agree on finite: they do where they hold the same reduced gradients, and must reduce it where each has
// other parameters. Where they agree they have the same scale.
type LossScaler struct {
	scale, good Slot // good: steps since the scale last changed
}

// NewLossScaler returns a LossScaler at the first step, with the scale 65536.
func NewLossScaler() *LossScaler {
	s := &LossScaler{scale: counter("loss_scaler.scale"), good: counter("loss_scaler.growth_tracker")}
	s.scale.Value[0] = initialScale
	return s
}

// Scale returns what to multiply the loss of the next backward with.
func (s *LossScaler) Scale() float32 { return s.scale.Value[0] }

// Unscale divides all gradients by the scale and tells whether they are finite: if not, the step must be skipped.
// It takes gradients that are complete, added up and reduced.
func (s *LossScaler) Unscale(params []*nn.Param) (finite bool) {
	finite = true
	for _, p := range params {
		finite = finite && (!p.HasGrad || vec.Finite(p.Grad))
	}
	scaleGrads(params, float32(1/float64(s.Scale())))
	return finite
}

// Update ends a step, in which all gradients of all ranks were finite or not. An overflow halves the scale; 2000
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

// State returns the scale and the count of good steps, to be saved and restored as an Optimizer's.
func (s *LossScaler) State() []Slot { return []Slot{s.scale, s.good} }
