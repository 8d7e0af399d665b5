package data_test

import (
	"fmt"

	"ddpbatch/trainer/data"
)

// Two ranks share five rows. The first row of the order is dealt twice, so that both ranks get three.
func ExampleDistributedSampler() {
	for rank := range 2 {
		s, err := data.NewDistributedSampler(data.SamplerConfig{Rows: 5, World: 2, Rank: rank})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("rank", rank, s.Indices())
	}
	// Output:
	// rank 0 [0 2 4]
	// rank 1 [1 3 0]
}

// The loader reads batches of two rows ahead, while the caller works on the batch before.
func ExampleLoader() {
	set, err := data.Generate(data.GeneratedConfig{Rows: 5, Inputs: 1, Outputs: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	loader := data.NewLoader(set, 2)
	defer loader.Close()
	loader.Begin([]int{0, 1, 2, 3, 4}, 2)
	for batch := loader.Next(); batch != nil; batch = loader.Next() {
		fmt.Println(batch.Rows, "rows")
	}
	// Output:
	// 2 rows
	// 2 rows
	// 1 rows
}

// Two ranks stop after two rows each, and three ranks continue with the rest of the epoch. Every row is dealt once.
func ExampleDistributedSampler_SetEpoch() {
	deal := func(world, first int) {
		for rank := range world {
			s, err := data.NewDistributedSampler(data.SamplerConfig{Rows: 10, World: world, Rank: rank, Remainder: data.Uneven})
			if err != nil {
				fmt.Println(err)
				return
			}
			s.SetEpoch(0, first)
			fmt.Println("rank", rank, s.Indices())
		}
	}
	deal(2, 0)
	fmt.Println("after 4 rows:")
	deal(3, 4)
	// Output:
	// rank 0 [0 2 4 6 8]
	// rank 1 [1 3 5 7 9]
	// after 4 rows:
	// rank 0 [4 7]
	// rank 1 [5 8]
	// rank 2 [6 9]
}
