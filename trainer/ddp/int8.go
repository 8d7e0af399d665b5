package ddp

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"ddpbatch/mpi"
	"ddpbatch/trainer/internal/vec"
	"ddpbatch/trainer/nn"
)

// int8Hook is what NewInt8Hook makes.
type int8Hook struct {
	feedback
	plans                    []int8Plan // by bucket
	mine                     []int      // for AllToAllV: the bytes that come from each rank
	sent, received, averaged scratch[uint8]
	missing                  []float32 // by element of this rank's blocks: what rounding the mean has cost, times the ranks
}

// NewInt8Hook averages in 8 bits, with a float32 scale for every 256 elements of a parameter: about a quarter of float32's bytes.
//
// Every rank sends each other its share of the blocks, quantized, adds up the mean of what it gets itself in float32, in the order of ranks,
// quantizes that and sends it to all. So a value is rounded twice, and all ranks decode the same bytes. What both
// roundings leave out is kept on the rank that has rounded, for the next step (error feedback): a residual is at most half a scale, 1/254 of the
// largest magnitude of its block, and of the mean's block times the number of ranks where this rank owns it.
//
// All that costs a core about 4 ns for each element: it pays where the network gives a rank less than about 1.5 GB/s, not within a machine.
//
// A block with an Inf or a NaN on any rank is all NaN on every rank, and leaves its residuals as they were. Where a step is
// skipped or its loss scaled otherwise, the residuals are not told.
func NewInt8Hook() Hook { return new(int8Hook) }

// Bind implements Hook.
func (h *int8Hook) Bind(ctx context.Context, comm *mpi.Comm, buckets []*Bucket) error {
	world := comm.Size()
	groups := make([][]*nn.Param, len(buckets))
	h.plans, h.mine = make([]int8Plan, len(buckets)), make([]int, world)
	size, share, elements := 0, 0, 0
	for i, b := range buckets {
		groups[i] = b.Params
		plan := newInt8Plan(b, world, comm.Rank())
		h.plans[i] = plan
		size, share, elements = max(size, plan.size), max(share, slices.Max(plan.bytes)), max(elements, plan.elements)
	}
	h.bind(groups)
	h.missing = make([]float32, elements)
	return errors.Join(h.sent.grow(ctx, comm, size), h.received.grow(ctx, comm, world*share), h.averaged.grow(ctx, comm, size))
}

// Reduce implements Hook.
func (h *int8Hook) Reduce(ctx context.Context, comm *mpi.Comm, b *Bucket) error {
	plan, rank, world := &h.plans[b.Index], comm.Rank(), comm.Size()
	share := plan.bytes[rank]
	for i := range h.mine {
		h.mine[i] = share
	}
	sent, received, averaged := h.sent.data[:plan.size], h.received.data[:world*share], h.averaged.data[:plan.size]

	vec.Add(b.Data, h.left[b.Index])
	for _, block := range plan.blocks {
		quantize(block.record(sent), block.of(b.Data))
	}
	if err := mpi.AllToAllV(ctx, comm, received, h.mine, sent, plan.bytes); err != nil {
		return fmt.Errorf("exchange bucket %d in int8: %w", b.Index, err)
	}
	h.average(plan, averaged, received, world)
	if err := mpi.AllGatherV(ctx, comm, averaged, averaged[plan.begin:][:share], plan.bytes); err != nil {
		return fmt.Errorf("gather bucket %d in int8: %w", b.Index, err)
	}
	for _, block := range plan.blocks {
		settle(block.of(b.Data), block.of(h.left[b.Index]), block.record(sent), block.record(averaged))
	}
	h.keepMissing(plan, b)
	return nil
}

// average makes the records of this rank's blocks the means over the ranks' in received.
func (h *int8Hook) average(plan *int8Plan, averaged, received []byte, world int) {
	share, rest := len(received)/world, h.missing
	for _, block := range plan.mine() {
		n := block.end - block.begin
		var mean []float32
		mean, rest = rest[:n], rest[n:]
		clear(mean)
		for rank := range world {
			record := received[rank*share+block.at-plan.begin:][:block.recordSize()]
			addDequantized(mean, record, 1/float32(world))
		}
		record := block.record(averaged)
		quantize(record, mean)
		addDequantized(mean, record, -1)
		vec.Scale(mean, float32(world))
	}
}

// settle replaces x, a gradient with its residual, by the mean, and left by the new residual.
func settle(x, left []float32, sent, averaged []byte) {
	if lost(averaged) {
		for i := range x {
			x[i] = float32(math.NaN())
		}
		return
	}
	scaleS, scaleA := scaleOf(sent), scaleOf(averaged)
	left, sent, averaged = left[:len(x)], sent[scaleSize:][:len(x)], averaged[scaleSize:][:len(x)]
	for i, v := range x {
		left[i] = v - float32(scaleS*float32(int8(sent[i])))
		x[i] = scaleA * float32(int8(averaged[i]))
	}
}

// keepMissing adds what rounding the means has cost to the residuals of their owner.
func (h *int8Hook) keepMissing(plan *int8Plan, b *Bucket) {
	averaged, rest := h.averaged.data, h.missing
	for _, block := range plan.mine() {
		left := block.of(h.left[b.Index])
		if !lost(block.record(averaged)) {
			vec.Add(left, rest[:len(left)])
		}
		rest = rest[len(left):]
	}
}

// State implements Hook: the residuals, which are this rank's own.
func (h *int8Hook) State() []State { return h.states }

// String is the type that is sent.
func (*int8Hook) String() string { return "int8" }
