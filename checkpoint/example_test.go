package checkpoint_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"ddpbatch/checkpoint"
)

// A trainer resumes from the newest good checkpoint, trains, and saves.
func Example() {
	ctx := context.Background()
	checkpoints, err := os.MkdirTemp("", "checkpoints")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(checkpoints)
	dir, err := checkpoint.Open(checkpoints, checkpoint.Options{
		Keep:    checkpoint.Policy{Last: 3},
		Run:     "mnist",
		Attempt: 1,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, _, err := dir.Latest(ctx); errors.Is(err, checkpoint.ErrNone) {
		fmt.Println("starting anew")
	}
	info, err := dir.Save(ctx, &checkpoint.State{
		Step:    200,
		World:   8,
		Tensors: []checkpoint.Tensor{checkpoint.Float32Tensor("bias", []int{2}, []float32{0.5, -1})},
		Values:  map[string]json.RawMessage{"sampler.epoch": json.RawMessage("3")},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("saved", filepath.Base(info.Path))

	state, _, err := dir.Latest(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	bias := make([]float32, 2)
	if err := state.Tensors[0].Float32s(bias); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("step", state.Step, "bias", bias, "epoch", string(state.Values["sampler.epoch"]))
	// Output:
	// starting anew
	// saved step-000000000200
	// step 200 bias [0.5 -1] epoch 3
}
