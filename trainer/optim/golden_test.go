package optim

import (
	"encoding/json"
	"math"
	"os"
	"slices"
	"testing"

	"ddpbatch/internal/testenv"
	"ddpbatch/trainer/internal/mt19937"
	"ddpbatch/trainer/nn"
)

// golden is a run of real PyTorch DistributedDataParallel: five steps of Linear(4,8)-ReLU-Linear(8,3) with mean
// squared error and SGD with momentum, under torch.manual_seed(1).
type golden struct {
	World       int         `json:"world"`
	GlobalBatch int         `json:"global_batch"`
	X           [][]float32 `json:"X"`
	Y           [][]float32 `json:"Y"`
	Init        []tensor    `json:"init"`
	Final       []tensor    `json:"final"`
	Steps       []struct {
		LossPerRank []float64   `json:"loss_per_rank"`
		Grads       [][]float32 `json:"grads"`
	} `json:"steps"`
}

type tensor struct {
	Shape []int     `json:"shape"`
	Data  []float32 `json:"data"`
}

// PyTorch sums products of these tiny matrices in another order, and its SGD fuses multiplication and addition: a
// few units in the last place, 6e-8 for values near 1.
const goldenTolerance = 1e-6

func closeTo(t *testing.T, what string, got, want []float32) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d values, want %d", what, len(got), len(want))
	}
	for i := range want {
		if math.Abs(float64(got[i])-float64(want[i])) > goldenTolerance {
			t.Errorf("%s: value %d is %v, PyTorch has %v", what, i, got[i], want[i])
		}
	}
}

// rows returns rows [first, first+n) of table.
func rows(table [][]float32, first, n int) nn.Matrix {
	return nn.Matrix{Rows: n, Cols: len(table[0]), Data: slices.Concat(table[first : first+n]...)}
}

func TestGoldenTraining(t *testing.T) {
	for _, file := range []string{"ddp_mlp_sgd_w1.json", "ddp_mlp_sgd_w2.json"} {
		t.Run(file, func(t *testing.T) {
			text, err := os.ReadFile(testenv.Shared(t, "golden", file))
			if err != nil {
				t.Fatal(err)
			}
			var g golden
			if err := json.Unmarshal(text, &g); err != nil {
				t.Fatal(err)
			}
			replay(t, g)
		})
	}
}

// replay trains as g did, the ranks in turn, and compares all that g recorded.
func replay(t *testing.T, g golden) {
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
	batch := g.GlobalBatch / g.World
	for s, step := range g.Steps {
		nn.ZeroGrad(params)
		for rank := range g.World {
			first := g.GlobalBatch*s%len(g.X) + rank*batch
			value, dy := loss.Loss(model.Forward(&pass, rows(g.X, first, batch)), rows(g.Y, first, batch))
			if math.Abs(value-step.LossPerRank[rank]) > goldenTolerance {
				t.Errorf("step %d rank %d: loss %v, PyTorch has %v", s, rank, value, step.LossPerRank[rank])
			}
			model.Backward(&pass, dy, false) // adds up over the ranks
		}
		for _, p := range params {
			for i := range p.Grad {
				p.Grad[i] /= float32(g.World)
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
