package main

import (
	"math"
	"math/rand/v2"
	"testing"

	"ddpbatch/trainer/data"
	"ddpbatch/trainer/nn"
)

// The gradient of a hand-written module is compared with finite differences of the loss. With steps of 1e-2, float32's rounding gives the
// difference an error of about 1e-5. The curvature of the loss, which is below 1 here, adds an error of 1e-4.
func TestPReLUGradient(t *testing.T) {
	src := rand.New(rand.NewPCG(1, 2))
	model := nn.NewNamed(nn.Child{Name: "in", Module: nn.NewLinear(2, 5, src)}, nn.Child{Name: "act", Module: newPReLU(5)},
		nn.Child{Name: "out", Module: nn.NewLinear(5, arms, src)})
	var b data.Batch
	b.Fill(newSpirals(12, 3), []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11})
	var criterion nn.CrossEntropy
	pass := &nn.Pass{Training: true}
	_, dy := criterion.Loss(model.Forward(pass, inputs(&b)), b.Labels)
	model.Backward(pass, dy, false)
	lossAt := func(value *float32, x float32) float64 {
		old := *value
		*value = x
		loss, _ := criterion.Loss(model.Forward(pass, inputs(&b)), b.Labels)
		*value = old
		return loss
	}
	for _, p := range model.Params() {
		if p.Name != "act.weight" {
			continue
		}
		for j, a := range p.Value {
			const h = 1e-2
			want := (lossAt(&p.Value[j], a+h) - lossAt(&p.Value[j], a-h)) / (2 * h)
			if math.Abs(want-float64(p.Grad[j])) > 2e-4 {
				t.Errorf("%s[%d]: gradient %v, difference %v", p.Name, j, p.Grad[j], want)
			}
		}
	}
}
