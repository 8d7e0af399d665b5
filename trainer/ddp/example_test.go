package ddp_test

import (
	"context"
	"fmt"
	"math/rand/v2"

	"ddpbatch/mpi"
	"ddpbatch/mpi/transport"
	"ddpbatch/trainer/ddp"
	"ddpbatch/trainer/nn"
	"ddpbatch/trainer/optim"
)

// Two ranks of one process train on one row each. The result equals that of one rank with both rows.
func Example() {
	ctx := context.Background()
	comms, err := mpi.InitLocal(ctx, transport.NewNetwork(2), mpi.InitConfig{Config: mpi.DefaultConfig()})
	if err != nil {
		fmt.Println(err)
		return
	}
	done := make(chan float64)
	for _, comm := range comms {
		go func() {
			defer comm.Close()
			loss, err := train(ctx, comm)
			if err != nil {
				fmt.Println(err)
			}
			done <- loss
		}()
	}
	fmt.Println("both have the same mean loss:", <-done == <-done)
	// Output: both have the same mean loss: true
}

func train(ctx context.Context, comm *mpi.Comm) (mean float64, err error) {
	model := nn.NewSequential(nn.NewLinear(2, 1, rand.New(rand.NewPCG(1, uint64(comm.Rank()))))) // rank 0's values win
	d, err := ddp.New(ctx, comm, model.Params(), model.Buffers(), ddp.DefaultConfig())
	if err != nil {
		return 0, err
	}
	optimizer, err := optim.New(model.Params(), optim.Config{Kind: "sgd", LR: 0.1})
	if err != nil {
		return 0, err
	}
	var (
		loss nn.MSE
		pass = &nn.Pass{Training: true}
		sums = make([]float64, 1)
		x    = nn.Matrix{Rows: 1, Cols: 2, Data: []float32{float32(comm.Rank()), 1}}
		y    = nn.Matrix{Rows: 1, Cols: 1, Data: []float32{float32(3 * comm.Rank())}}
	)
	for range 10 {
		d.ZeroGrad()
		var dy nn.Matrix
		sums[0], dy = loss.Loss(model.Forward(pass, x), y)
		d.Begin(ctx, pass, sums)
		model.Backward(pass, dy, false)
		if err := d.Finish(); err != nil {
			return 0, err
		}
		optimizer.Step()
	}
	return sums[0] / float64(comm.Size()), nil
}
