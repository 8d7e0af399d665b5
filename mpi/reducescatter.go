package mpi

import "context"

// ReduceScatter combines the ranks' in element by element, and leaves block i of the result with rank i, in out. The
// blocks all have the length of out, and in that of all of them. in is not changed; it must not overlap out.
func ReduceScatter[T Number](ctx context.Context, c *Comm, out, in []T, op Op) error {
	var o operation
	reduceScatterOf(&o, c, out, in, nil, op)
	return c.run(ctx, &o)
}

// ReduceScatterV is ReduceScatter with blocks of different lengths: counts[i] elements for rank i. All ranks give the
// same counts.
func ReduceScatterV[T Number](ctx context.Context, c *Comm, out, in []T, counts []int, op Op) error {
	var o operation
	reduceScatterOf(&o, c, out, in, counts, op)
	return c.run(ctx, &o)
}

// IReduceScatter is ReduceScatter that goes on by itself. Both buffers are the Request's until that is done.
func IReduceScatter[T Number](ctx context.Context, c *Comm, out, in []T, op Op) *Request {
	var o operation
	reduceScatterOf(&o, c, out, in, nil, op)
	return c.request(ctx, &o)
}

// IReduceScatterV is ReduceScatterV that goes on by itself. Buffers and counts are the Request's until that is done.
func IReduceScatterV[T Number](ctx context.Context, c *Comm, out, in []T, counts []int, op Op) *Request {
	var o operation
	reduceScatterOf(&o, c, out, in, counts, op)
	return c.request(ctx, &o)
}

func reduceScatterOf[T Number](o *operation, c *Comm, out, in []T, counts []int, op Op) {
	reductionOf(o, reduceScatterCall, in, op)
	o.out, o.in = bytesOf(out), bytesOf(in)
	defer o.checkApart()
	if counts == nil {
		o.inBlocks = o.evenBlocks(c, "in", len(in), len(out))
	} else {
		o.inBlocks = o.unevenBlocks(c, "in", len(in), counts)
		o.ownBlock(c, "out", len(out), counts)
		o.root = digestOfCounts(counts)
	}
}
