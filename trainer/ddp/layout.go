package ddp

import (
	"context"
	"fmt"
	"slices"

	"ddpbatch/mpi"
)

// takeGradients lays the gradients into one arena.
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

// rebuild deals the parameters to buckets in the order that settle has found. The gradients, which may hold what has gathered on this
// rank, move along.
func (d *DDP) rebuild() {
	d.order, d.next = d.next, nil
	gathered := make([][]float32, len(d.members))
	for i, m := range d.members {
		gathered[i] = slices.Clone(m.param.Grad)
	}
	d.arrange()
	for i, m := range d.members {
		copy(m.param.Grad, gathered[i])
	}
}

// arrange deals the parameters to buckets, in d.order, and makes their gradients views of the arena. What that holds belongs to
// nobody then.
func (d *DDP) arrange() {
	const float32Bytes = 4
	tensors := make([]tensor, len(d.order))
	for i, index := range d.order {
		tensors[i] = tensor{"float32", len(d.members[index].param.Value) * float32Bytes}
	}
	indices, _ := assign(tensors, []int{d.cfg.FirstBucketBytes, d.cfg.BucketBytes})
	d.buckets = d.buckets[:0]
	end := 0
	for i, places := range indices {
		b := &Bucket{Index: i}
		begin := end
		for _, place := range places {
			m := d.members[d.order[place]]
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
	d.unbound = d.cfg.Hook != nil
}

// bind makes the buckets known to the Hook.
func (d *DDP) bind(ctx context.Context) error {
	if !d.unbound {
		return nil
	}
	if err := d.cfg.Hook.Bind(ctx, d.comm, d.buckets); err != nil {
		return fmt.Errorf("prepare the communication hook for %d buckets: %w", len(d.buckets), err)
	}
	d.unbound = false
	return nil
}
