package ddp

import (
	"context"
	"fmt"
	"slices"

	"ddpbatch/mpi"
)

// firstOrder guesses the order that the DDP begins with: Backward goes through a model from its end, so it is the reverse of the model's.
func (d *DDP) firstOrder() {
	for _, m := range slices.Backward(d.members) {
		d.order = append(d.order, int32(m.index))
	}
	// Where any parameter may be unused, a step's order says little about the next one's (as in PyTorch).
	d.settled = d.cfg.FindUnused
}

// settle has all ranks take over the order in which rank 0's gradients have become complete.
func (d *DDP) settle(ctx context.Context) error {
	order := slices.Clone(d.order)
	if arrived := d.step.arrived; len(arrived) == len(order) { // rank 0 had input
		copy(order, arrived)
	}
	if err := mpi.Broadcast(ctx, d.comm, order, 0); err != nil {
		return fmt.Errorf("broadcast the order of gradients: %w", err)
	}
	if !isPermutation(order) {
		return fmt.Errorf("rank 0's order of %d gradients is none", len(order))
	}
	d.settled = true
	if !slices.Equal(order, d.order) {
		d.next = order
	}
	return nil
}

// isPermutation tells whether order has each number below its length once.
func isPermutation(order []int32) bool {
	sorted := slices.Sorted(slices.Values(order))
	for i, index := range sorted {
		if int(index) != i {
			return false
		}
	}
	return true
}
