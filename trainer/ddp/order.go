package ddp

import (
	"context"
	"fmt"
	"slices"

	"ddpbatch/mpi"
)

// Order is the names of the parameters in the order in which they are dealt to buckets, or will be at the next ZeroGrad; nil before the first
// synchronised step, while that is a guess. With it as Config.Order, a run that is resumed has the same buckets at once, and a
// Hook whose result depends on them gets the same.
func (d *DDP) Order() []string {
	if !d.settled {
		return nil
	}
	order := d.order
	if d.next != nil {
		order = d.next
	}
	names := make([]string, len(order))
	for i, index := range order {
		names[i] = d.members[index].param.Name
	}
	return names
}

// firstOrder sets the order that the DDP begins with: Config.Order, or a guess. Backward goes through a model from its end, so that is
// the reverse of the model's.
func (d *DDP) firstOrder() error {
	if d.cfg.Order == nil {
		for _, m := range slices.Backward(d.members) {
			d.order = append(d.order, int32(m.index))
		}
		// Where any parameter may be unused, a step's order says little about the next one's (as in PyTorch).
		d.settled = d.cfg.FindUnused
		return nil
	}
	places := map[string]int32{}
	for _, m := range d.members {
		places[m.param.Name] = int32(m.index)
	}
	for _, name := range d.cfg.Order {
		place, ok := places[name]
		if !ok {
			return fmt.Errorf("the order of gradients names %s, which is no parameter of this model, or twice: leave it out", name)
		}
		delete(places, name)
		d.order = append(d.order, place)
	}
	if len(d.order) != len(d.members) {
		return fmt.Errorf("the order of gradients has %d names, for %d parameters: leave it out", len(d.order), len(d.members))
	}
	d.settled = true
	return nil
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
