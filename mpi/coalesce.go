package mpi

import "context"

// AllReduceMany is AllReduce of several buffers in one collective, unless they are long: fewer messages, and, under Config.Deterministic, the same bits
// as one call for each. All ranks give buffers of the same lengths. It allocates.
func AllReduceMany[T Number](ctx context.Context, c *Comm, bufs [][]T, op Op) error {
	if !worthPacking(bufs) {
		for _, buf := range bufs {
			if err := AllReduce(ctx, c, buf, op); err != nil {
				return err
			}
		}
		return nil
	}
	packed := pack(bufs)
	if err := AllReduce(ctx, c, packed, op); err != nil {
		return err
	}
	unpack(bufs, packed)
	return nil
}

// BroadcastMany is Broadcast of several buffers in one collective, unless they are long. All ranks give buffers of the same lengths. It allocates.
func BroadcastMany[T Number](ctx context.Context, c *Comm, bufs [][]T, root int) error {
	if !worthPacking(bufs) {
		for _, buf := range bufs {
			if err := Broadcast(ctx, c, buf, root); err != nil {
				return err
			}
		}
		return nil
	}
	packed := pack(bufs)
	if err := Broadcast(ctx, c, packed, root); err != nil {
		return err
	}
	if c.Rank() != root {
		unpack(bufs, packed)
	}
	return nil
}

// maxPacked is how many elements are packed: with more, what a collective costs is no longer the number of its messages.
const maxPacked = 1 << 18

// worthPacking tells whether one collective for all is better than one for each.
func worthPacking[T Number](bufs [][]T) bool {
	n := 0
	for _, buf := range bufs {
		n += len(buf)
	}
	return len(bufs) > 1 && n <= maxPacked
}

func pack[T Number](bufs [][]T) []T {
	n := 0
	for _, buf := range bufs {
		n += len(buf)
	}
	packed := make([]T, 0, n)
	for _, buf := range bufs {
		packed = append(packed, buf...)
	}
	return packed
}

func unpack[T Number](bufs [][]T, packed []T) {
	for _, buf := range bufs {
		packed = packed[copy(buf, packed):]
	}
}
