package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"sync"

	"ddpbatch/mpi"
	"ddpbatch/mpi/store"
)

// ranks runs f as each of size ranks of a group, here in one process.
func ranks(size int, f func(ctx context.Context, c *mpi.Comm) error) {
	ctx := context.Background()
	s := store.NewMemory()
	defer s.Close()
	secret, err := mpi.NewSecret()
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

// Rank 0 serves a store at the address, and the others connect to it. Every rank gets the same method with its own rank, and the same
// secret as hexadecimal digits.
func ExampleInitMethod() {
	rank, digits := os.Getenv("MY_RANK"), os.Getenv("MY_SECRET")
	secret, err := mpi.ParseSecret(digits)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	c, err := mpi.InitMethod(ctx, "tcp://node1:29500?world_size=4&rank="+rank, mpi.InitConfig{
		Run: "my-run", Attempt: 1, Secret: secret, Config: mpi.DefaultConfig(),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	sum := []int{c.Rank()}
	if err := mpi.AllReduce(ctx, c, sum, mpi.Sum); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("the sum of", c.Size(), "ranks is", sum[0])
}

// The ranks exchange their addresses through a file that all of them can reach. The file does not exist beforehand, and the last rank that
// leaves removes it.
func ExampleInitMethod_file() {
	dir, err := os.MkdirTemp("", "group")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	secret, err := mpi.NewSecret()
	if err != nil {
		fmt.Println(err)
		return
	}
	const size = 2
	var tasks sync.WaitGroup
	for rank := range size { // separate processes in a real program
		tasks.Go(func() {
			ctx := context.Background()
			method := fmt.Sprintf("file://%s/store?rank=%d&world_size=%d", dir, rank, size)
			c, err := mpi.InitMethod(ctx, method, mpi.InitConfig{
				Listen: "127.0.0.1", Run: "my-run", Attempt: 1, Secret: secret, Config: mpi.DefaultConfig(),
			})
			if err != nil {
				fmt.Println(err)
				return
			}
			defer c.Close()
			sum := []int{c.Rank()}
			if err := mpi.AllReduce(ctx, c, sum, mpi.Sum); err != nil {
				fmt.Println(err)
			} else if rank == 0 {
				fmt.Println("the sum of", c.Size(), "ranks is", sum[0])
			}
		})
	}
	tasks.Wait()
	// Output: the sum of 2 ranks is 1
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

// A buffer of Alloc is reduced in place, without a copy, if the ranks share memory.
func ExampleAlloc() {
	ranks(2, func(ctx context.Context, c *mpi.Comm) error {
		bucket, err := mpi.Alloc[float32](ctx, c, 3)
		if err != nil {
			return err
		}
		copy(bucket, []float32{1, 2, float32(c.Rank())})
		if err := mpi.AllReduce(ctx, c, bucket, mpi.Avg); err != nil {
			return err
		}
		if c.Rank() == 1 {
			fmt.Println(bucket)
		}
		return nil
	})
	// Output: [1 2 0.5]
}

// Even and odd ranks sum separately.
func ExampleComm_Split() {
	ranks(4, func(ctx context.Context, c *mpi.Comm) error {
		half, err := c.Split(ctx, c.Rank()%2, c.Rank())
		if err != nil {
			return err
		}
		defer half.Close()
		x := []int{c.Rank()}
		if err := mpi.AllReduce(ctx, half, x, mpi.Sum); err != nil {
			return err
		}
		if c.Rank() == 3 {
			fmt.Println("ranks", half.Ranks(), "have the sum", x[0])
		}
		return nil
	})
	// Output: ranks [1 3] have the sum 4
}

func ExampleSend() {
	const tag = 1
	ranks(2, func(ctx context.Context, c *mpi.Comm) error {
		if c.Rank() == 1 {
			return mpi.Send(ctx, c, []float64{2.5, 3.5}, 0, tag)
		}
		buf := make([]float64, 10)
		status, err := mpi.Recv(ctx, c, buf, mpi.AnySource, tag)
		if err != nil {
			return err
		}
		fmt.Println("rank", status.Source, "sent", buf[:status.Count])
		return nil
	})
	// Output: rank 1 sent [2.5 3.5]
}

// The ranks do something else while the sum is being computed.
func ExampleIAllReduce() {
	ranks(3, func(ctx context.Context, c *mpi.Comm) error {
		gradient := []float32{1, 2}
		sum := mpi.IAllReduce(ctx, c, gradient, mpi.Sum)
		loss := float64(c.Rank()) // computed meanwhile; gradient must not be used
		if err := sum.Wait(ctx); err != nil {
			return err
		}
		if c.Rank() == 2 {
			fmt.Println(gradient, loss)
		}
		return nil
	})
	// Output: [3 6] 2
}

// The operation is made from a function, and keeps the number with the larger absolute value.
func ExampleNewOp() {
	largest := mpi.NewOp("largest", true, func(dst, left, right []float64) {
		for i := range dst {
			if dst[i] = left[i]; math.Abs(right[i]) > math.Abs(left[i]) {
				dst[i] = right[i]
			}
		}
	})
	ranks(3, func(ctx context.Context, c *mpi.Comm) error {
		x := []float64{float64(c.Rank()), float64(-c.Rank())}
		if err := mpi.AllReduce(ctx, c, x, largest); err != nil {
			return err
		}
		if c.Rank() == 0 {
			fmt.Println(x)
		}
		return nil
	})
	// Output: [2 -2]
}

// One rank does not find its file. All ranks return that error, and no rank waits for the failed one in a collective.
func ExampleAgree() {
	ranks(3, func(ctx context.Context, c *mpi.Comm) error {
		var err error
		if c.Rank() == 1 {
			_, err = os.Open("/nowhere/part-1")
		}
		err = mpi.Agree(ctx, c, err, fs.ErrNotExist)
		fmt.Println(c.Rank(), errors.Is(err, fs.ErrNotExist), err)
		return nil
	})
	// Unordered output:
	// 0 true rank 1: open /nowhere/part-1: no such file or directory
	// 1 true open /nowhere/part-1: no such file or directory
	// 2 true rank 1: open /nowhere/part-1: no such file or directory
}
