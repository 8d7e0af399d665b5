package distributed_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	"ddpbatch/checkpoint"
	"ddpbatch/checkpoint/distributed"
)

// alone is a group of one rank.
type alone struct{}

func (alone) Rank() int { return 0 }
func (alone) Size() int { return 1 }
func (alone) Gather(_ context.Context, payload []byte) ([][]byte, error) {
	return [][]byte{payload}, nil
}
func (alone) Broadcast(_ context.Context, payload []byte) ([]byte, error) { return payload, nil }

// Save stores the values that the arrays have when it is called. A checkpoint is read back into the same memory.
func ExampleFloat32() {
	folder, err := os.MkdirTemp("", "checkpoints")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(folder)
	for range 2 { // the second run resumes from the checkpoint
		if err := train(context.Background(), folder); err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// begins with [1 2]
	// begins with [10 20]
}

func train(ctx context.Context, folder string) error {
	weight := []float32{1, 2}
	array := distributed.Float32("weight", []int{2}, weight)
	dir, err := checkpoint.Open(folder, checkpoint.Options{Run: "example", Attempt: 1})
	if err != nil {
		return err
	}
	saver, err := distributed.New(ctx, alone{}, dir, []distributed.Array{array}, distributed.Options{})
	if err != nil {
		return err
	}
	c, err := saver.Resume(ctx, func(c *checkpoint.Checkpoint) error {
		return c.Read(ctx, []checkpoint.Target{{Name: array.Name, Data: array.Data}})
	})
	if err == nil {
		err = c.Close()
	}
	if err != nil && !errors.Is(err, checkpoint.ErrNone) {
		return errors.Join(err, saver.Close())
	}
	fmt.Println("begins with", weight)
	weight[0], weight[1] = 10, 20
	return errors.Join(saver.Save(ctx, distributed.Meta{Step: 1}), saver.Close())
}
