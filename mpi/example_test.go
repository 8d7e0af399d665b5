package mpi_test

import (
	"context"
	"fmt"
	"sync"

	"ddpbatch/internal/auth"
	"ddpbatch/mpi"
	"ddpbatch/mpi/store"
)

// ranks runs f as each of size ranks of a group, here in one process.
func ranks(size int, f func(ctx context.Context, c *mpi.Comm) error) {
	ctx := context.Background()
	s := store.NewMemory()
	defer s.Close()
	secret, err := auth.NewSecret()
	if err != nil {
		fmt.Println(err)
		return
	}
	var tasks sync.WaitGroup
	for rank := range size {
		tasks.Go(func() {
			c, err := mpi.Init(ctx, mpi.InitConfig{
				Rank: rank, Size: size, Store: s, Listen: "127.0.0.1",
				Run: "example", Attempt: 1, Secret: secret, Config: mpi.DefaultConfig(),
			})
			if err == nil {
				defer c.Close()
				err = f(ctx, c)
			}
			if err != nil {
				fmt.Println(err)
			}
		})
	}
	tasks.Wait()
}

func ExampleAllReduce() {
	ranks(4, func(ctx context.Context, c *mpi.Comm) error {
		gradient := []float32{float32(c.Rank()), 1}
		if err := mpi.AllReduce(ctx, c, gradient, mpi.Sum); err != nil {
			return err
		}
		if c.Rank() == 0 {
			fmt.Println(gradient)
		}
		return nil
	})
	// Output: [6 4]
}

func ExampleBroadcast() {
	ranks(3, func(ctx context.Context, c *mpi.Comm) error {
		parameters := make([]float64, 2)
		if c.Rank() == 0 {
			parameters = []float64{0.5, -1}
		}
		if err := mpi.Broadcast(ctx, c, parameters, 0); err != nil {
			return err
		}
		if c.Rank() == 2 {
			fmt.Println(parameters)
		}
		return nil
	})
	// Output: [0.5 -1]
}

func ExampleComm_Barrier() {
	ranks(2, func(ctx context.Context, c *mpi.Comm) error {
		if c.Rank() == 1 {
			fmt.Println("rank 1 has written its part")
		}
		if err := c.Barrier(ctx); err != nil {
			return err
		}
		if c.Rank() == 0 {
			fmt.Println("rank 0 may read it")
		}
		return nil
	})
	// Output:
	// rank 1 has written its part
	// rank 0 may read it
}
