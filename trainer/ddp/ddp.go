package ddp

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"

	"ddpbatch/mpi"
	"ddpbatch/trainer/nn"
)

// DDP is one rank's replica of a model.
type DDP struct {
	comm *mpi.Comm
	// flat holds all gradients, parameter by parameter, and then the scalars: one all-reduce moves
	// everything that ranks tell each other in a step.
	flat  []float32
	grads int // how much of flat is gradients
}

// New wraps a model, given as its parameters. It returns an error, on every rank, unless all
// ranks have the same number of parameters with the same names and shapes. It then gives all
// ranks rank 0's values, and moves the gradients into one buffer of its own, with room for
// scalars float32 numbers that travel with them.
func New(ctx context.Context, comm *mpi.Comm, params []*nn.Param, scalars int) (*DDP, error) {
	if err := Agree(ctx, comm, "model (number, names and shapes of parameters)", digest(params)); err != nil {
		return nil, err
	}
	d := &DDP{comm: comm}
	for _, p := range params {
		if err := mpi.Broadcast(ctx, comm, p.Value, 0); err != nil {
			return nil, fmt.Errorf("broadcast parameter %s: %w", p.Name, err)
		}
		d.grads += len(p.Grad)
	}
	d.flat = make([]float32, d.grads+scalars)
	rest := d.flat
	for _, p := range params {
		n := len(p.Grad)
		p.Grad, rest = rest[:n:n], rest[n:]
	}
	return d, nil
}

// digest is a hash of the names and shapes of params, in order.
func digest(params []*nn.Param) [sha256.Size]byte {
	h := sha256.New()
	number := func(n int) { h.Write(binary.LittleEndian.AppendUint64(nil, uint64(n))) }
	number(len(params))
	for _, p := range params {
		number(len(p.Name))
		io.WriteString(h, p.Name)
		number(len(p.Shape))
		for _, n := range p.Shape {
			number(n)
		}
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// ZeroGrad sets all gradients and scalars to zero.
func (d *DDP) ZeroGrad() { clear(d.flat) }

// Scalars returns the numbers that travel with the gradients. The caller sets them before
// AllReduce, and finds the sums over all ranks in them after it.
func (d *DDP) Scalars() []float32 { return d.flat[d.grads:] }

// AllReduce replaces each gradient by its mean over all ranks and each scalar by its sum, the same bits
// on every rank. It is the only communication of a training step.
func (d *DDP) AllReduce(ctx context.Context) error {
	// Dividing first, as PyTorch does, keeps the sum in the range of float32.
	if world := d.comm.Size(); world > 1 {
		scale := 1 / float32(world)
		for i := range d.flat[:d.grads] {
			d.flat[i] *= scale
		}
	}
	if err := mpi.AllReduce(ctx, d.comm, d.flat, mpi.Sum); err != nil {
		return fmt.Errorf("all-reduce gradients: %w", err)
	}
	return nil
}
