package mpi

import "context"

// AllReduceMany is AllReduce of several buffers in one collective: fewer messages, and, as under Config.Deterministic, the same bits
// as one call for each. All ranks give buffers of the same lengths.
func AllReduceMany[T Number](ctx context.Context, c *Comm, bufs [][]T, op Op) error {
	if len(bufs) == 1 {
		return AllReduce(ctx, c, bufs[0], op)
	}
	packed := pack(bufs)
	if err := AllReduce(ctx, c, packed, op); err != nil {
		return err
	}
	unpack(bufs, packed)
	return nil
}

// BroadcastMany is Broadcast of several buffers in one collective. All ranks give buffers of the same lengths.
func BroadcastMany[T Number](ctx context.Context, c *Comm, bufs [][]T, root int) error {
	if len(bufs) == 1 {
		return Broadcast(ctx, c, bufs[0], root)
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
