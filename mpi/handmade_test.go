package mpi

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"ddpbatch/internal/testkit"
)

// handmade is a case of another project's tests, with values that were worked out by hand.
type handmade struct {
	name   string
	worlds []int
	run    func(ctx context.Context, c *Comm) error
}

// The numbers of ranks that the cases are played by.
var (
	few         = []int{1, 2, 3, 4, 7}                                 // powers of two, odd, and prime
	mpichWorlds = []int{3, 4, 5, 7, 8, 10}                             // of test/mpi/coll/testlist: reference/collectives.md 4.5
	glooWorlds  = []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 24, 27, 32} // reference/collectives.md 4.6
)

// handmadeCases are those of reference/collectives.md 4.3 and 4.5.
var handmadeCases = []handmade{
	{"torch/simple_reduce", few, torchSimpleReduce},
	{"torch/master_and_workers", few, torchMasterAndWorkers},
	{"torch/broadcast", few, torchBroadcast},
	{"torch/scatter", few, torchScatter},
	{"torch/gather", few, torchGather},
	{"torch/all_gather", few, torchAllGather},
	{"torch/all_to_all_equal", few, torchAllToAllEqual},
	{"torch/all_to_all_unequal", few, torchAllToAllUnequal},
	{"torch/stress", []int{2, 4}, torchStress},
	{"mpich/redscat", mpichWorlds, mpichRedscat},
	{"mpich/redscat2", mpichWorlds, mpichRedscat2},
	{"mpich/alltoall1", mpichWorlds, mpichAllToAll},
	{"mpich/alltoallv", mpichWorlds, mpichAllToAllV},
	{"mpich/alltoallv0", mpichWorlds, mpichAllToAllV0},
	{"mpich/exscan", mpichWorlds, mpichExscan},
	{"mpich/coll4", mpichWorlds, mpichRows},
	{"mpich/coll6", mpichWorlds, mpichAllRows},
	{"mpich/red4", mpichWorlds, mpichPermutations},
	{"mpich/opband", mpichWorlds, mpichBitwise},
	{"mpich/allred5", mpichWorlds, mpichAllred5},
	{"mpich/allredmany", mpichWorlds, mpichAllredMany},
	{"mpich/longuser", mpichWorlds, mpichLongUser},
	{"mpich/uoplong", mpichWorlds, mpichUserOpLong},
	{"mpich/allred_float", mpichWorlds, mpichAllredFloat},
	{"mpich/nonblocking", mpichWorlds, mpichNonblocking},
}

// Every case, over every transport, with every algorithm of its collective: those that keep the canonical order, and then all. The cases
// of one number of ranks share a world.
func TestHandmade(t *testing.T) { // without the race detector
	if testing.Short() {
		t.Skip("-short: it compares very many results")
	}
	worlds := append(slices.Clone(few), mpichWorlds...)
	slices.Sort(worlds)
	worlds = slices.Compact(worlds)
	for _, over := range transports {
		for _, size := range sizesOn(over, worlds) {
			t.Run(over+"/"+rankName(size), func(t *testing.T) {
				deterministic := rand.IntN(2) == 1
				t.Logf("deterministic: %v", deterministic)
				w := newWorldOn(t, over, size, func(cfg *InitConfig) { cfg.Config.Deterministic = deterministic })
				for _, tt := range handmadeCases {
					if !slices.Contains(tt.worlds, size) {
						continue
					}
					t.Run(tt.name, func(t *testing.T) {
						must(t, testkit.Each(size, func(rank int) error { return tt.run(t.Context(), w[rank]) }))
					})
				}
			})
		}
	}
}

// handmadeProcess is a rank of TestHandmade in its own process: it plays all cases, one after another, whatever the number of ranks.
func handmadeProcess(ctx context.Context, c *Comm) error {
	for _, deterministic := range []bool{true, false} {
		c.core.world.config.Deterministic = deterministic
		for _, tt := range handmadeCases {
			if err := tt.run(ctx, c); err != nil {
				return fmt.Errorf("%s, deterministic %v: %w", tt.name, deterministic, err)
			}
		}
	}
	return nil
}
