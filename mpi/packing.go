package mpi

import (
	"context"
	"fmt"
)

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
	return &Request{call: k.start(&pending{ctx: ctx, do: func() error { return calls(run) }})}
}

// checkMany wants pairs of buffers, of which the whole is as many times the part as there are ranks; with apart, they share no memory.
func checkMany[T Number](c *Comm, wholeName string, wholes [][]T, partName string, parts [][]T, apart bool) error {
	if len(wholes) != len(parts) {
		return fmt.Errorf("there are %d %s and %d %s: they must be as many", len(wholes), wholeName, len(parts), partName)
	}
	for i := range parts {
		if len(wholes[i]) != c.Size()*len(parts[i]) {
			return fmt.Errorf("%s[%d] has %d elements, not %d blocks of %d", wholeName, i, len(wholes[i]), c.Size(), len(parts[i]))
		}
		if apart && overlap(bytesOf(wholes[i]), bytesOf(parts[i])) {
			return fmt.Errorf("%s[%d] and %s[%d] overlap", wholeName, i, partName, i)
		}
	}
	return nil
}

// maxPacked is how many elements are packed, of all ranks' blocks: with more, what a collective costs is no longer the number of its messages.
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
