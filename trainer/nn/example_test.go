package nn_test

import (
	"fmt"
	"math/rand/v2"

	"ddpbatch/trainer/nn"
)

// Plain gradient descent teaches a small network the exclusive or.
func Example() {
	src := rand.New(rand.NewPCG(1, 2))
	model := nn.NewSequential(nn.NewLinear(2, 8, src), nn.NewTanh(), nn.NewLinear(8, 1, src))
	x := nn.Matrix{Rows: 4, Cols: 2, Data: []float32{0, 0, 0, 1, 1, 0, 1, 1}}
	want := nn.Matrix{Rows: 4, Cols: 1, Data: []float32{0, 1, 1, 0}}

	var loss nn.MSE
	for range 2000 {
		_, dy := loss.Loss(model.Forward(x), want)
		nn.ZeroGrad(model.Params())
		model.Backward(dy, false)
		for _, p := range model.Params() {
			for i, g := range p.Grad {
				p.Value[i] -= 0.3 * g
			}
		}
	}
	for _, y := range model.Forward(x).Data {
		fmt.Printf("%.0f ", max(y, 0))
	}
	// Output: 0 1 1 0
}
