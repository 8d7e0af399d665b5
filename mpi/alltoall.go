package mpi

import (
	"context"
	"fmt"

	"ddpbatch/mpi/internal/element"
)

// AllToAll sends block i of in to rank i, where it becomes the block of this rank in out. All blocks have the same length: in
// and out are as many of them as there are ranks. They must not overlap.
func AllToAll[T Number](ctx context.Context, c *Comm, out, in []T) error {
	var o operation
	allToAllOf(&o, c, out, in, nil, nil)
	return c.run(ctx, &o)
}

// AllToAllV is AllToAll with blocks of different lengths: inCounts[i] elements go to rank i, and outCounts[i] come from it.
func AllToAllV[T Number](ctx context.Context, c *Comm, out []T, outCounts []int, in []T, inCounts []int) error {
	var o operation
	allToAllOf(&o, c, out, in, outCounts, inCounts)
	return c.run(ctx, &o)
}

// IAllToAll is AllToAll that goes on by itself. Both buffers are the Request's until that is done.
func IAllToAll[T Number](ctx context.Context, c *Comm, out, in []T) *Request {
	var o operation
	allToAllOf(&o, c, out, in, nil, nil)
	return c.request(ctx, &o)
}

// IAllToAllV is AllToAllV that goes on by itself. Buffers and counts are the Request's until that is done.
func IAllToAllV[T Number](ctx context.Context, c *Comm, out []T, outCounts []int, in []T, inCounts []int) *Request {
	var o operation
	allToAllOf(&o, c, out, in, outCounts, inCounts)
	return c.request(ctx, &o)
}

func allToAllOf[T Number](o *operation, c *Comm, out, in []T, outCounts, inCounts []int) {
	o.kind, o.data, o.count = allToAllCall, element.TypeOf[T](), uint64(len(in))
	o.out, o.in = bytesOf(out), bytesOf(in)
	defer o.checkApart()
	if outCounts == nil && inCounts == nil {
		if len(in) != len(out) && o.wrong == nil {
			o.wrong = fmt.Errorf("in has %d elements and out %d: they must be as many", len(in), len(out))
		}
		o.inBlocks = o.evenBlocks(c, "in", len(in), len(in)/c.Size())
		o.outBlocks = o.inBlocks
		return
	}
	o.ragged, o.count = true, noCount
	o.inBlocks = o.unevenBlocks(c, "in", len(in), inCounts)
	o.outBlocks = o.unevenBlocks(c, "out", len(out), outCounts)
	if r := c.Rank(); o.wrong == nil && inCounts[r] != outCounts[r] {
		o.wrong = fmt.Errorf("this rank sends itself %d elements and receives %d", inCounts[r], outCounts[r])
	}
}
