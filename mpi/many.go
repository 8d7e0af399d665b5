package mpi

import (
	"context"
	"fmt"
)

// AllReduceMany is AllReduce of several buffers. Unless the buffers are long, it combines them in one collective, which needs fewer
// messages. Under Config.Deterministic, the result has the same bits as one call for each buffer. All ranks pass buffers of the same
// lengths, which must not overlap. AllReduceMany allocates memory.
func AllReduceMany[T Number](ctx context.Context, c *Comm, bufs [][]T, op Op) error {
	return allReduceMany(c.runner(ctx), bufs, op)
}

// IAllReduceMany is the non-blocking form of AllReduceMany. The buffers belong to the Request until it is done.
func IAllReduceMany[T Number](ctx context.Context, c *Comm, bufs [][]T, op Op) *Request {
	return c.requestMany(ctx, func(run runner) error { return allReduceMany(run, bufs, op) })
}

func allReduceMany[T Number](run runner, bufs [][]T, op Op) error {
	packed, digest := pack(bufs, 1)
	if packed == nil {
		for _, buf := range bufs {
			if err := run(allReduceOf(new(operation), buf, op)); err != nil {
				return err
			}
		}
		return nil
	}
	err := run(allReduceOf(&operation{digest: digest}, packed, op))
	if err == nil {
		unpack(bufs, packed)
	}
	return err
}

// BroadcastMany is Broadcast of several buffers, under the rules of AllReduceMany.
func BroadcastMany[T Number](ctx context.Context, c *Comm, bufs [][]T, root int) error {
	return broadcastMany(c, c.runner(ctx), bufs, root)
}

// IBroadcastMany is the non-blocking form of BroadcastMany. The buffers belong to the Request until it is done.
func IBroadcastMany[T Number](ctx context.Context, c *Comm, bufs [][]T, root int) *Request {
	return c.requestMany(ctx, func(run runner) error { return broadcastMany(c, run, bufs, root) })
}

func broadcastMany[T Number](c *Comm, run runner, bufs [][]T, root int) error {
	packed, digest := pack(bufs, 1)
	if packed == nil {
		for _, buf := range bufs {
			if err := run(broadcastOf(new(operation), c, buf, root)); err != nil {
				return err
			}
		}
		return nil
	}
	err := run(broadcastOf(&operation{digest: digest}, c, packed, root))
	if err == nil && c.Rank() != root {
		unpack(bufs, packed)
	}
	return err
}

// AllGatherMany is AllGather of several buffers, under the rules of AllReduceMany. It gathers ins[i] in outs[i]; ins[i] may be this rank's
// block of outs[i].
func AllGatherMany[T Number](ctx context.Context, c *Comm, outs, ins [][]T) error {
	return allGatherMany(c, c.runner(ctx), outs, ins)
}

// IAllGatherMany is the non-blocking form of AllGatherMany. The buffers belong to the Request until it is done.
func IAllGatherMany[T Number](ctx context.Context, c *Comm, outs, ins [][]T) *Request {
	return c.requestMany(ctx, func(run runner) error { return allGatherMany(c, run, outs, ins) })
}

func allGatherMany[T Number](c *Comm, run runner, outs, ins [][]T) error {
	if err := checkMany(c, "outs", outs, "ins", ins, false); err != nil {
		return run(&operation{kind: allGatherCall, wrong: err})
	}
	packed, digest := pack(ins, c.Size())
	if packed == nil {
		for i := range ins {
			if err := run(allGatherOf(new(operation), c, outs[i], ins[i], nil)); err != nil {
				return err
			}
		}
		return nil
	}
	all := make([]T, len(packed)*c.Size())
	err := run(allGatherOf(&operation{digest: digest}, c, all, packed, nil))
	if err == nil {
		for rank := range c.Size() {
			all = unpack(blocksOf(outs, rank, ins), all)
		}
	}
	return err
}

// ReduceScatterMany is ReduceScatter of several buffers, under the rules of AllReduceMany. It reduces ins[i] to outs[i].
func ReduceScatterMany[T Number](ctx context.Context, c *Comm, outs, ins [][]T, op Op) error {
	return reduceScatterMany(c, c.runner(ctx), outs, ins, op)
}

// IReduceScatterMany is the non-blocking form of ReduceScatterMany. The buffers belong to the Request until it is done.
func IReduceScatterMany[T Number](ctx context.Context, c *Comm, outs, ins [][]T, op Op) *Request {
	return c.requestMany(ctx, func(run runner) error { return reduceScatterMany(c, run, outs, ins, op) })
}

func reduceScatterMany[T Number](c *Comm, run runner, outs, ins [][]T, op Op) error {
	if err := checkMany(c, "ins", ins, "outs", outs, true); err != nil {
		return run(&operation{kind: reduceScatterCall, wrong: err})
	}
	packed, digest := pack(outs, c.Size())
	if packed == nil {
		for i := range ins {
			if err := run(reduceScatterOf(new(operation), c, outs[i], ins[i], nil, op)); err != nil {
				return err
			}
		}
		return nil
	}
	all := make([]T, 0, len(packed)*c.Size())
	for rank := range c.Size() {
		for _, block := range blocksOf(ins, rank, outs) {
			all = append(all, block...)
		}
	}
	err := run(reduceScatterOf(&operation{digest: digest}, c, packed, all, nil, op))
	if err == nil {
		unpack(outs, packed)
	}
	return err
}

// runner makes a call.
type runner func(o *operation) error

// runner returns a runner that waits for each call.
func (c *Comm) runner(ctx context.Context) runner {
	return func(o *operation) error { return c.run(ctx, o) }
}

// requestMany makes several calls in one turn, without blocking.
func (c *Comm) requestMany(ctx context.Context, calls func(run runner) error) *Request {
	k := c.core
	run := func(o *operation) error {
		o.using = c.algorithm
		return k.execute(ctx, o)
	}
	return &Request{call: k.start(&queuedCall{ctx: ctx, do: func() error { return calls(run) }})}
}

// checkMany checks pairs of buffers. Each whole has as many elements as one part of every rank. If apart is set, the two must not overlap;
// otherwise the part may be this rank's own block of the whole.
func checkMany[T Number](c *Comm, wholeName string, wholes [][]T, partName string, parts [][]T, apart bool) error {
	if len(wholes) != len(parts) {
		return fmt.Errorf("%d %s and %d %s: their numbers must be equal", len(wholes), wholeName, len(parts), partName)
	}
	for i := range parts {
		if len(wholes[i]) != c.Size()*len(parts[i]) {
			return fmt.Errorf("%s[%d] must have %d blocks of %d elements, but has %d elements",
				wholeName, i, c.Size(), len(parts[i]), len(wholes[i]))
		}
		switch {
		case apart && overlap(bytesOf(wholes[i]), bytesOf(parts[i])):
			return fmt.Errorf("%s[%d] and %s[%d] overlap", wholeName, i, partName, i)
		case !apart && overlapsOthers(wholes[i], parts[i], c.Rank()*len(parts[i])):
			return fmt.Errorf("%s[%d] overlaps %s[%d], but is not this rank's own block of it", partName, i, wholeName, i)
		}
	}
	return nil
}

// maxPacked is the largest number of elements, counting all ranks' blocks, that are packed. With more elements, the number of messages no
// longer determines the cost of a collective.
const maxPacked = 1 << 18

// pack joins buffers into one. It returns nil if one collective for all of them, with that many blocks, is not better than one for each. It
// also returns a digest of the lengths, which must be the same on all ranks.
func pack[T Number](bufs [][]T, blocks int) (packed []T, digest uint32) {
	n, lengths := 0, make([]int, len(bufs))
	for i, buf := range bufs {
		n += len(buf)
		lengths[i] = len(buf)
	}
	if len(bufs) < 2 || n > maxPacked/blocks {
		return nil, 0
	}
	packed = make([]T, 0, n)
	for _, buf := range bufs {
		packed = append(packed, buf...)
	}
	return packed, uint32(digestOfCounts(lengths))
}

// unpack copies packed back into the buffers, and returns the rest of it.
func unpack[T Number](bufs [][]T, packed []T) []T {
	for _, buf := range bufs {
		packed = packed[copy(buf, packed):]
	}
	return packed
}

// blocksOf returns a rank's block of each of wholes. The blocks are as long as parts.
func blocksOf[T Number](wholes [][]T, rank int, parts [][]T) [][]T {
	blocks := make([][]T, len(wholes))
	for i, whole := range wholes {
		n := len(parts[i])
		blocks[i] = whole[rank*n : (rank+1)*n]
	}
	return blocks
}
