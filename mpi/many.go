package mpi

import (
	"context"
	"fmt"
)

// AllReduceMany is AllReduce of several buffers: in one collective, unless they are long, which is fewer messages and, under
// Config.Deterministic, the same bits as one call for each. All ranks give buffers of the same lengths, that share no memory. It
// allocates.
func AllReduceMany[T Number](ctx context.Context, c *Comm, bufs [][]T, op Op) error {
	return allReduceMany(c.runner(ctx), bufs, op)
}

// IAllReduceMany is AllReduceMany that goes on by itself. The buffers are the Request's until that is done.
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

// IBroadcastMany is BroadcastMany that goes on by itself. The buffers are the Request's until that is done.
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

// AllGatherMany is AllGather of several buffers, under the rules of AllReduceMany: each of ins into the out of the same place, of which it
// may be this rank's block.
func AllGatherMany[T Number](ctx context.Context, c *Comm, outs, ins [][]T) error {
	return allGatherMany(c, c.runner(ctx), outs, ins)
}

// IAllGatherMany is AllGatherMany that goes on by itself. The buffers are the Request's until that is done.
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

// ReduceScatterMany is ReduceScatter of several buffers, under the rules of AllReduceMany: each of ins into the out of the same place.
func ReduceScatterMany[T Number](ctx context.Context, c *Comm, outs, ins [][]T, op Op) error {
	return reduceScatterMany(c, c.runner(ctx), outs, ins, op)
}

// IReduceScatterMany is ReduceScatterMany that goes on by itself. The buffers are the Request's until that is done.
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

// runner makes calls that are waited for.
func (c *Comm) runner(ctx context.Context) runner {
	return func(o *operation) error { return c.run(ctx, o) }
}

// requestMany makes calls that go on by themselves, in one turn.
func (c *Comm) requestMany(ctx context.Context, calls func(run runner) error) *Request {
	k := c.core
	run := func(o *operation) error {
		o.using = c.algorithm
		return k.execute(ctx, o)
	}
	return &Request{call: k.start(&queuedCall{ctx: ctx, do: func() error { return calls(run) }})}
}

// checkMany checks pairs of buffers. Each whole has as many elements as one part of every rank. If apart is set, the two must share no
// memory; otherwise the part may be this rank's own block of the whole.
func checkMany[T Number](c *Comm, wholeName string, wholes [][]T, partName string, parts [][]T, apart bool) error {
	if len(wholes) != len(parts) {
		return fmt.Errorf("there are %d %s and %d %s: they must be as many", len(wholes), wholeName, len(parts), partName)
	}
	for i := range parts {
		if len(wholes[i]) != c.Size()*len(parts[i]) {
			return fmt.Errorf("%s[%d] has %d elements, not %d blocks of %d", wholeName, i, len(wholes[i]), c.Size(), len(parts[i]))
		}
		switch {
		case apart && overlap(bytesOf(wholes[i]), bytesOf(parts[i])):
			return fmt.Errorf("%s[%d] and %s[%d] overlap", wholeName, i, partName, i)
		case !apart && overlapsOthers(wholes[i], parts[i], c.Rank()*len(parts[i])):
			return fmt.Errorf("%s[%d] overlaps %s[%d], and is not this rank's own block of it", partName, i, wholeName, i)
		}
	}
	return nil
}

// maxPacked is how many elements are packed, of all ranks' blocks:
// with more, what a collective costs is no longer the number of its messages.
const maxPacked = 1 << 18

// pack puts buffers together, or returns nil where one collective for all, of that many blocks, is no better than one for each. It also
// gives a digest of the lengths, in which ranks must agree.
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

// unpack is the reverse, and returns what is left.
func unpack[T Number](bufs [][]T, packed []T) []T {
	for _, buf := range bufs {
		packed = packed[copy(buf, packed):]
	}
	return packed
}

// blocksOf is a rank's blocks of buffers; they are as long as parts.
func blocksOf[T Number](wholes [][]T, rank int, parts [][]T) [][]T {
	blocks := make([][]T, len(wholes))
	for i, whole := range wholes {
		n := len(parts[i])
		blocks[i] = whole[rank*n : (rank+1)*n]
	}
	return blocks
}
