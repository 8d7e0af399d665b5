package main

import (
	"math/rand/v2"
	"testing"

	"ddpbatch/internal/testkit"
	"ddpbatch/mpi"
	"ddpbatch/mpi/transport"
	"ddpbatch/trainer/nn"
)

// The evaluation may have fewer rows than ranks. A rank without a row counts none as right.
func TestMoreRanksThanRows(t *testing.T) {
	const ranks, count = 3, 2
	comms, err := mpi.InitLocal(t.Context(), transport.NewNetwork(ranks), mpi.InitConfig{Config: mpi.DefaultConfig()})
	if err != nil {
		t.Fatal(err)
	}
	rows := newSpirals(count, 1)
	for rank, err := range testkit.Each(ranks, func(rank int) error {
		model := newModel(rows.Spec(), rand.New(rand.NewPCG(1, 2)))
		right, err := evaluate(t.Context(), comms[rank], model, &nn.Pass{}, rows)
		if share := right * count; share != 0 && share != 1 && share != count {
			t.Errorf("rank %d: %v of the rows are right", rank, right)
		}
		return err
	}) {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
	for _, comm := range comms {
		comm.Close()
	}
}
