package mpi

import (
	"context"

	"ddpbatch/mpi/transport"
)

// AllReduce combines the buffers of all ranks element by element with op, and
// leaves the result in buf on every rank. buf has the same length on all of
// them, and may be empty.
//
// Every rank gets the same bits, and gets them again from the same inputs in the same number
// of ranks: element j is combined in the order of the ring, from a rank that depends on j and
// the length of buf alone. Another length or number of ranks may round differently.
//
// It is a ring: a reduce-scatter, then an all-gather. For p ranks and n bytes,
// with a latency of a, b seconds a byte on the wire and c a byte of reduction:
//
//	2(p-1) a + 2 (p-1)/p n b + (p-1)/p n c
//
// When it fails the content of buf is undefined.
func AllReduce[T Number](ctx context.Context, c *Comm, buf []T, op Op) error {
	call := transport.Call{
		Collective: uint8(allReduceCall), Element: uint8(elementOf[T]()), Op: uint8(op), Count: uint64(len(buf)),
	}
	if err := c.begin(ctx, &call, op.check()); err != nil {
		return err
	}
	return c.end(call, ring(ctx, c, buf, op))
}

// ring passes chunks to the right. In step s of the reduce-scatter rank r sends chunk
// r-s and combines chunk r-s-1, so that at its end it has all of chunk r+1; the
// all-gather then hands finished chunks round.
func ring[T Number](ctx context.Context, c *Comm, buf []T, op Op) error {
	p, r := c.Size(), c.Rank()
	for step := range p - 1 {
		if err := shift(ctx, c, chunk(buf, r-step, p), chunk(buf, r-step-1, p), op); err != nil {
			return err
		}
	}
	for step := range p - 1 {
		if err := shift(ctx, c, chunk(buf, r-step+1, p), chunk(buf, r-step, p), 0); err != nil {
			return err
		}
	}
	return nil
}

// shift sends out to the right while it receives, from the left, what is to be
// combined into in, or to replace it if op is 0.
func shift[T Number](ctx context.Context, c *Comm, out, in []T, op Op) error {
	p, r := c.Size(), c.Rank()
	right, left := (r+1)%p, (r+p-1)%p
	outFrames, inFrames := frames[T](len(out)), frames[T](len(in))
	for i := range max(outFrames, inFrames) {
		if i < outFrames {
			if err := c.mesh.Send(ctx, right, bytesOf(frame(out, i))); err != nil {
				return err
			}
		}
		if i < inFrames {
			if err := receive(ctx, c, left, frame(in, i), op); err != nil {
				return err
			}
		}
	}
	return c.mesh.Sent(ctx, right)
}

// receive is shift's other half, for one frame.
func receive[T Number](ctx context.Context, c *Comm, from int, in []T, op Op) error {
	if op == 0 {
		return c.mesh.Recv(ctx, from, bytesOf(in))
	}
	arrived := scratchOf[T](c.scratch)[:len(in)]
	if err := c.mesh.Recv(ctx, from, bytesOf(arrived)); err != nil {
		return err
	}
	reduce(op, in, arrived)
	return nil
}
