package mpi

import (
	"context"

	"ddpbatch/mpi/transport"
)

// Barrier returns when every rank has called it.
//
// It is the dissemination barrier (Hensgen, Finkel and Manber, 1988): in round k
// rank r tells rank r+2^k that it, and all it has heard of, are here. For p ranks and a latency
// of a:
//
//	ceil(log2 p) a
func (c *Comm) Barrier(ctx context.Context) error {
	call := transport.Call{Collective: uint8(barrierCall)}
	if err := c.begin(ctx, &call, nil); err != nil {
		return err
	}
	return c.end(call, c.disseminate(ctx))
}

func (c *Comm) disseminate(ctx context.Context) error {
	p, r := c.Size(), c.Rank()
	for distance := 1; distance < p; distance <<= 1 {
		to, from := (r+distance)%p, (r-distance+p)%p
		if err := c.mesh.Send(ctx, to, nil); err != nil {
			return err
		}
		if err := c.mesh.Recv(ctx, from, nil); err != nil {
			return err
		}
		if err := c.mesh.Sent(ctx, to); err != nil {
			return err
		}
	}
	return nil
}
