package data_test

import (
	"fmt"

	"ddpbatch/trainer/data"
)

// Two ranks share five rows: the first of the order is dealt twice, so that both get three.
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
