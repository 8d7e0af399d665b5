package ddp

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"slices"

	"ddpbatch/mpi"
	"ddpbatch/trainer/internal/vec"
	"ddpbatch/trainer/nn"
)

// int8Hook is the Hook of NewInt8Hook.
type int8Hook struct {
	feedback
	plans                    []int8Plan // by bucket
	mine                     []int      // for AllToAllV: the number of bytes from each rank
	sent, received, averaged scratch[uint8]
	missing                  []float32 // by element of this rank's blocks: the error of rounding the mean, times the number of ranks
}

// NewInt8Hook returns a Hook that averages in 8 bits, with a float32 scale for every 256 elements of a parameter: about a quarter of
// float32's bytes.
//
// Every rank sends each other rank its share of the blocks, quantized. It computes the mean of what it receives in float32, in the order of
// ranks, quantizes that and sends it to all ranks. So a value is rounded twice, and all ranks decode the same bytes. The errors of both
// roundings are kept on the rank that has rounded, for the next step (error feedback): a residual is at most half a scale, 1/254
// of the largest magnitude of its block, plus the same of the mean's block times the number of ranks if this rank owns it.
//
// This takes a core about 4 ns for each element. So it pays if the network gives a rank less than about 1.5 GB/s, and not within a machine.
//
// A block with an Inf or a NaN on any rank becomes NaN on every rank, and leaves its residuals unchanged. If a step is
// skipped, or its loss is scaled differently, the residuals are not adjusted.
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
		applyMean(block.of(b.Data), block.of(h.left[b.Index]), block.record(sent), block.record(averaged))
	}
	h.keepMissing(plan, b)
	return nil
}

// average computes the records of this rank's blocks: the means of the ranks' records in received.
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

// applyMean replaces x, the sum of a gradient and its residual, by the mean, and left by the new residual.
func applyMean(x, left []float32, sent, averaged []byte) {
	if notFinite(averaged) {
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

// keepMissing adds the errors of rounding the means to the residuals of their owner.
func (h *int8Hook) keepMissing(plan *int8Plan, b *Bucket) {
	averaged, rest := h.averaged.data, h.missing
	for _, block := range plan.mine() {
		left := block.of(h.left[b.Index])
		if !notFinite(block.record(averaged)) {
			vec.Add(left, rest[:len(left)])
		}
		rest = rest[len(left):]
	}
}

// State implements Hook. It returns the residuals, which are this rank's own.
func (h *int8Hook) State() []State { return h.states }

// String returns the type that is sent.
func (*int8Hook) String() string { return "int8" }

// int8Plan describes how one bucket is sent. Each parameter begins a new block, and a parameter's blocks have the same owners in any
// bucket, so neither means nor residuals depend on how parameters are assigned to buckets.
type int8Plan struct {
	blocks []int8Block // by owner
	bytes  []int       // of the records of each owner
	size   int         // of all records

	first, last int // range of this rank's blocks
	begin       int // where its records begin among all records
	elements    int // number of elements in its blocks
}

// int8Block is a part of a bucket.
type int8Block struct {
	begin, end int // in the bucket's Data
	at         int // where its record begins among all records
	owner      int // the rank that averages it
}

func newInt8Plan(b *Bucket, world, rank int) int8Plan {
	plan := int8Plan{bytes: make([]int, world)}
	offset := 0
	for _, p := range b.Params {
		n := len(p.Grad)
		count := (n + blockSize - 1) / blockSize
		h := fnv.New32a()
		h.Write([]byte(p.Name))
		start := int(h.Sum32() % uint32(world)) // so that not all small parameters are rank 0's
		for i := range count {
			plan.blocks = append(plan.blocks, int8Block{
				begin: offset + i*blockSize,
				end:   offset + min((i+1)*blockSize, n),
				owner: (i*world/count + start) % world,
			})
		}
		offset += n
	}
	slices.SortStableFunc(plan.blocks, func(a, b int8Block) int { return cmp.Compare(a.owner, b.owner) })
	for i := range plan.blocks {
		block := &plan.blocks[i]
		block.at = plan.size
		plan.size += block.recordSize()
		plan.bytes[block.owner] += block.recordSize()
		switch {
		case block.owner < rank:
			plan.first, plan.begin = i+1, plan.size
		case block.owner == rank:
			plan.elements += block.end - block.begin
		}
		if block.owner <= rank {
			plan.last = i + 1
		}
	}
	return plan
}

// mine returns the blocks that this rank averages.
func (p *int8Plan) mine() []int8Block { return p.blocks[p.first:p.last] }

func (b int8Block) recordSize() int { return scaleSize + b.end - b.begin }

// record returns the block's record among all records.
func (b int8Block) record(all []byte) []byte { return all[b.at:][:b.recordSize()] }

// of returns the block's part of a bucket.
func (b int8Block) of(data []float32) []float32 { return data[b.begin:b.end] }

// A block of up to blockSize elements is quantized with a scale of its own, and sent as a record: the scale, a float32, and an int8
// for each element.
const (
	blockSize = 256
	scaleSize = 4
)

// scaleOf returns the factor of a record's elements. NaN marks a block that is not finite, or has elements from 2^127 on.
func scaleOf(record []byte) float32 {
	return math.Float32frombits(binary.LittleEndian.Uint32(record))
}

// notFinite reports whether a record is of a block that is marked as not finite.
func notFinite(record []byte) bool { return math.IsNaN(float64(scaleOf(record))) }

// quantize writes x as a record: x / scale, rounded to the nearest integer, with the largest magnitude at 127 scales. The
// error is at most half a scale, except that a block with all magnitudes below 2^-121 is written as zeros.
func quantize(record []byte, x []float32) {
	top := topBits(x)
	elements := record[scaleSize:]
	scale, inverse := math.Float32frombits(top)/127, 127/math.Float32frombits(top)
	switch {
	case top >= 0x7f000000: // 2^127: 127 scales, after rounding, may be infinite
		scale, inverse = float32(math.NaN()), 0
	case math.IsInf(float64(inverse), 0):
		scale, inverse = 0, 0
	}
	binary.LittleEndian.PutUint32(record, math.Float32bits(scale))
	if inverse == 0 {
		clear(elements)
		return
	}
	for i, v := range x {
		// Numbers from 2^23 to 2^24 have no fraction: the sum is rounded to an integer, and its lowest byte is the int8.
		const round = 3 << 22
		elements[i] = byte(math.Float32bits(float32(v*inverse) + round))
	}
}

// topBits returns the bits of the largest magnitude. They are ordered as magnitudes are, with infinity and then NaN last.
func topBits(x []float32) uint32 {
	const magnitude = 1<<31 - 1
	var a, b, c, d uint32 // separate, so that the processor can compute all four at once
	for ; len(x) >= 4; x = x[4:] {
		v := (*[4]float32)(x)
		a = max(a, math.Float32bits(v[0])&magnitude)
		b = max(b, math.Float32bits(v[1])&magnitude)
		c = max(c, math.Float32bits(v[2])&magnitude)
		d = max(d, math.Float32bits(v[3])&magnitude)
	}
	for _, v := range x {
		a = max(a, math.Float32bits(v)&magnitude)
	}
	return max(a, b, c, d)
}

// addDequantized adds a record, times factor, to dst.
func addDequantized(dst []float32, record []byte, factor float32) {
	scale := scaleOf(record) * factor
	for i, q := range record[scaleSize:][:len(dst)] {
		dst[i] += float32(scale * float32(int8(q)))
	}
}
