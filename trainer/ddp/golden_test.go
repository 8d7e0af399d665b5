package ddp

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"ddpbatch/internal/testkit/golden"
	"ddpbatch/mpi"
	"ddpbatch/trainer/nn"
	"ddpbatch/trainer/optim"
)

// The ranks take the steps that PyTorch took: the same losses, gradients and final parameters. Other worlds than PyTorch's, with as many
// rows together, have the same gradients and parameters.
func TestTrainsLikePyTorch(t *testing.T) { // without the race detector
	for _, theirs := range []int{1, 2} {
		g := golden.Read(t, theirs)
		for _, over := range transports {
			for _, world := range []int{1, 2, 4} {
				t.Run(fmt.Sprintf("PyTorch on %d/%s/%d", theirs, over, world), func(t *testing.T) {
					must(t, ranksOn(t, over, world, func(ctx context.Context, comm *mpi.Comm) error {
						return repeat(ctx, comm, g, world == theirs)
					}))
				})
			}
		}
	}
}

// repeat trains as g did. It compares losses where the world has the size of PyTorch's.
func repeat(ctx context.Context, comm *mpi.Comm, g golden.Training, losses bool) error {
	src := constant(comm.Rank())
	model := nn.NewSequential(nn.NewLinear(4, 8, src), nn.NewReLU(), nn.NewLinear(8, 3, src))
	params := model.Params()
	if comm.Rank() == 0 {
		for i, p := range params {
			copy(p.Value, g.Init[i].Data)
		}
	}
	d, err := New(ctx, comm, params, model.Buffers(), Config{FirstBucketBytes: 100, BucketBytes: 100, Overlap: true})
	if err != nil {
		return err
	}
	optimizer, err := optim.New(params, optim.Config{Kind: "sgd", LR: 0.1, Momentum: 0.9})
	if err != nil {
		return err
	}
	const global = 8 // rows of a step
	rows := global / comm.Size()
	var loss nn.MSE
	pass := &nn.Pass{Training: true}
	for s, step := range g.Steps {
		first := (global*s)%len(g.X) + rows*comm.Rank()
		x, y := matrix(g.X[first:first+rows]), matrix(g.Y[first:first+rows])
		d.ZeroGrad()
		value, dy := loss.Loss(model.Forward(pass, x), y)
		d.Begin(ctx, pass, nil)
		model.Backward(pass, dy, false)
		if err := d.Finish(); err != nil {
			return err
		}
		if losses {
			if err := near("loss", []float32{float32(value)}, []float32{float32(step.Losses[comm.Rank()])}); err != nil {
				return fmt.Errorf("step %d: %w", s, err)
			}
		}
		for i, want := range step.Grads {
			if err := near(params[i].Name, params[i].Grad, want); err != nil {
				return fmt.Errorf("step %d: gradient of %w", s, err)
			}
		}
		optimizer.Step()
	}
	for i, p := range params {
		if err := near(p.Name, p.Value, g.Final[i].Data); err != nil {
			return fmt.Errorf("at the end: %w", err)
		}
	}
	return nil
}

// near allows for what the rounding of sums in another order makes: a few units in the last place of values around 1.
func near(what string, got, want []float32) error {
	if len(got) != len(want) {
		return fmt.Errorf("%s has %d elements, PyTorch has %d", what, len(got), len(want))
	}
	for i := range got {
		if diff := math.Abs(float64(got[i]) - float64(want[i])); !(diff <= golden.Tolerance) {
			return fmt.Errorf("%s: element %d is %v, PyTorch has %v", what, i, got[i], want[i])
		}
	}
	return nil
}

func matrix(rows [][]float32) nn.Matrix {
	return nn.Matrix{Rows: len(rows), Cols: len(rows[0]), Data: slices.Concat(rows...)}
}

// constant is a Source of initial values that no rank but the first keeps.
type constant int

func (c constant) Uint32() uint32 { return uint32(c) << 20 }
