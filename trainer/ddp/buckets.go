package ddp

import (
	"context"
	"fmt"
	"slices"

	"ddpbatch/mpi"
)

// takeGradients moves the gradients into one arena.
func (d *DDP) takeGradients(ctx context.Context) error {
	n := 0
	for _, m := range d.members {
		n += len(m.param.Value)
	}
	var err error
	if d.arena, err = mpi.Alloc[float32](ctx, d.comm, n); err != nil {
		return fmt.Errorf("memory for gradients: %w", err)
	}
	d.arrange()
	d.ZeroGrad()
	if err := d.bind(ctx); err != nil {
		return d.fail(err)
	}
	return nil
}

// rebuild assigns the parameters to buckets in the order that adoptOrder has found. The gradients, which may hold accumulated values of
// this rank, move along.
func (d *DDP) rebuild() {
	d.order, d.nextOrder = d.nextOrder, nil
	gathered := make([][]float32, len(d.members))
	for i, m := range d.members {
		gathered[i] = slices.Clone(m.param.Grad)
	}
	d.arrange()
	for i, m := range d.members {
		copy(m.param.Grad, gathered[i])
	}
}

// arrange assigns the parameters to buckets, in d.order, and makes their gradients views of the arena, whose contents are then
// undefined.
func (d *DDP) arrange() {
	const float32Bytes = 4
	bytes := make([]int, len(d.order))
	for i, index := range d.order {
		bytes[i] = len(d.members[index].param.Value) * float32Bytes
	}
	d.buckets = d.buckets[:0]
	end := 0
	for i, members := range assign(bytes, []int{d.cfg.FirstBucketBytes, d.cfg.BucketBytes}) {
		b := &Bucket{Index: i}
		begin := end
		for _, at := range members {
			m := d.members[d.order[at]]
			n := len(m.param.Value)
			m.bucket = i
			m.param.Grad = d.arena[end : end+n : end+n]
			b.Params = append(b.Params, m.param)
			end += n
		}
		b.Data = d.arena[begin:end:end]
		d.buckets = append(d.buckets, b)
	}
	d.step.resize(len(d.buckets))
	d.hookUnbound = d.cfg.Hook != nil
}

// bind passes the buckets to the Hook.
func (d *DDP) bind(ctx context.Context) error {
	if !d.hookUnbound {
		return nil
	}
	if err := d.cfg.Hook.Bind(ctx, d.comm, d.buckets); err != nil {
		return fmt.Errorf("prepare the communication hook for %d buckets: %w", len(d.buckets), err)
	}
	d.hookUnbound = false
	return nil
}

// firstOrder guesses the order that the DDP begins with: the reverse of the model's, because Backward goes through a model from its end.
func (d *DDP) firstOrder() {
	for _, m := range slices.Backward(d.members) {
		d.order = append(d.order, int32(m.index))
	}
	// If any parameter may be unused, a step's order says little about the next one's (as in PyTorch).
	d.orderFixed = d.cfg.FindUnused
}

// adoptOrder makes all ranks adopt the order in which rank 0's gradients have become complete.
func (d *DDP) adoptOrder(ctx context.Context) error {
	order := slices.Clone(d.order)
	if arrived := d.step.arrived; len(arrived) == len(order) { // false if rank 0 had no input
		copy(order, arrived)
	}
	if err := mpi.Broadcast(ctx, d.comm, order, 0); err != nil {
		return fmt.Errorf("broadcast the order of gradients: %w", err)
	}
	if !isPermutation(order) {
		return fmt.Errorf("rank 0 sent an invalid gradient order: not a permutation of %d", len(order))
	}
	d.orderFixed = true
	if !slices.Equal(order, d.order) {
		d.nextOrder = order
	}
	return nil
}

// isPermutation reports whether order has each number below its length once.
func isPermutation(order []int32) bool {
	sorted := slices.Sorted(slices.Values(order))
	for i, index := range sorted {
		if int(index) != i {
			return false
		}
	}
	return true
}

// assign assigns gradients to buckets, in order, and returns the indices in each. A bucket takes gradients until it
// has at least as many bytes as its limit. Each bucket has the next of limits, and when they are used up the last one. (PyTorch's
// compute_bucket_assignment_by_size in torch/csrc/distributed/c10d/reducer.cpp, for dense gradients of one type.)
func assign(bytes, limits []int) (buckets [][]int) {
	var open []int
	filled := 0
	for i, n := range bytes {
		open = append(open, i)
		if filled += n; filled >= limits[0] {
			buckets = append(buckets, open)
			open, filled, limits = nil, 0, limits[min(1, len(limits)-1):]
		}
	}
	if len(open) > 0 {
		buckets = append(buckets, open)
	}
	return buckets
}
