package trainer_test

import (
	"context"
	"fmt"

	"ddpbatch/mpi"
	"ddpbatch/trainer"
)

// One rank fits a linear map to 4,096 generated rows.
func ExampleRun() {
	cfg := trainer.DefaultConfig()
	cfg.Epochs, cfg.BatchSize, cfg.Loss = 2, 32, "mse"
	cfg.Model.Kind, cfg.Data.Kind = "dense", "generated"

	result, err := trainer.Run(context.Background(), cfg, trainer.Env{Comm: mpi.Self()})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(result.Steps, "steps, loss below 0.001:", result.Loss < 0.001)
	// Output: 256 steps, loss below 0.001: true
}
