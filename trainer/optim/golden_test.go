package optim

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"ddpbatch/internal/testkit/golden"
	"ddpbatch/trainer/internal/mt19937"
	"ddpbatch/trainer/nn"
)

func closeTo(t *testing.T, what string, got, want []float32) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d values, want %d", what, len(got), len(want))
	}
	for i := range want {
		if math.Abs(float64(got[i])-float64(want[i])) > golden.Tolerance {
			t.Errorf("%s: value %d is %v, PyTorch has %v", what, i, got[i], want[i])
		}
	}
}

// rows returns rows [first, first+n) of table.
func rows(table [][]float32, first, n int) nn.Matrix {
	return nn.Matrix{Rows: n, Cols: len(table[0]), Data: slices.Concat(table[first : first+n]...)}
}

// PyTorch adds up products in another order, and its SGD fuses multiplication and addition: values may differ by golden.Tolerance.
func TestGoldenTraining(t *testing.T) {
	for _, world := range []int{1, 2} {
		t.Run(fmt.Sprintf("world %d", world), func(t *testing.T) { replay(t, golden.Read(t, world), world) })
	}
}

// replay trains as g did from torch.manual_seed(1) on, the ranks in turn, and compares all that g recorded.
func replay(t *testing.T, g golden.Training, world int) {
	src := mt19937.New(1)
	model := nn.NewSequential(nn.NewLinear(4, 8, src), nn.NewReLU(), nn.NewLinear(8, 3, src))
	params := model.Params()
	for i, p := range params {
		if !slices.Equal(p.Shape, g.Init[i].Shape) || !slices.Equal(p.Value, g.Init[i].Data) {
			t.Fatalf("initial %s is %v %v, PyTorch has %v %v", p.Name, p.Shape, p.Value, g.Init[i].Shape, g.Init[i].Data)
		}
	}
	sgd, err := New(params, Config{Kind: "sgd", LR: 0.1, Momentum: 0.9})
	if err != nil {
		t.Fatal(err)
	}
	pass := nn.Pass{Training: true}
	var loss nn.MSE
	batch := 8 / world
	for s, step := range g.Steps {
		nn.ZeroGrad(params)
		for rank := range world {
			first := 8*s + rank*batch
			value, dy := loss.Loss(model.Forward(&pass, rows(g.X, first, batch)), rows(g.Y, first, batch))
			if math.Abs(value-step.Losses[rank]) > golden.Tolerance {
				t.Errorf("step %d rank %d: loss %v, PyTorch has %v", s, rank, value, step.Losses[rank])
			}
			model.Backward(&pass, dy, false) // adds up over the ranks
		}
		for _, p := range params {
			for i := range p.Grad {
				p.Grad[i] /= float32(world)
			}
		}
		for i, want := range step.Grads {
			closeTo(t, "gradient of "+params[i].Name, params[i].Grad, want)
		}
		sgd.Step()
	}
	for i, p := range params {
		closeTo(t, "final "+p.Name, p.Value, g.Final[i].Data)
	}
}
