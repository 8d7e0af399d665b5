package optim

import (
	"math"

	"ddpbatch/trainer/nn"
)

// moments is the state that Adam's family keeps of one parameter.
type moments struct {
	step, mean, square Slot
}

// newMoments returns the moments of all params, and the same slots as one list.
func newMoments(params []*nn.Param) (list []moments, state []Slot) {
	for _, p := range params {
		m := moments{step: counter("step." + p.Name), mean: slotLike("exp_avg", p), square: slotLike("exp_avg_sq", p)}
		list = append(list, m)
		state = append(state, m.step, m.mean, m.square)
	}
	return list, state
}

// next counts a step and returns the bias corrections 1 - beta^step of both moments. The count stops at 2^24, above
// which float32 holds no odd number, as PyTorch's does: by then both are 1 in float32, unless a beta is above 1 - 1e-6.
func (m *moments) next(beta1, beta2 float64) (bias1, bias2 float64) {
	m.step.Value[0]++
	step := float64(m.step.Value[0])
	return 1 - math.Pow(beta1, step), 1 - math.Pow(beta2, step)
}
