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
	train := nn.Pass{Training: true}
	for range 2000 {
		_, dy := loss.Loss(model.Forward(&train, x), want)
		nn.ZeroGrad(model.Params())
		model.Backward(&train, dy, false)
		for _, p := range model.Params() {
			for i, g := range p.Grad {
				p.Value[i] -= 0.3 * g
			}
		}
	}
	for _, y := range model.Forward(&train, x).Data {
		fmt.Printf("%.0f ", max(y, 0))
	}
	// Output: 0 1 1 0
}

// A network of two convolutions for handwritten digits has the parameter names that PyTorch would give.
func ExampleNewCNN() {
	src := rand.New(rand.NewPCG(1, 2))
	model := nn.NewCNN(nn.CNNConfig{In: nn.Image{Channels: 1, Height: 28, Width: 28}, Channels: []int{16, 32}, Kernel: 3, Classes: 10}, src)
	for _, p := range model.Params() {
		fmt.Println(p.Name, p.Shape)
	}
	// Output:
	// 0.weight [16 1 3 3]
	// 0.bias [16]
	// 3.weight [32 16 3 3]
	// 3.bias [32]
	// 7.weight [10 1568]
	// 7.bias [10]
}
