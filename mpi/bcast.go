package mpi

import (
	"context"

	"ddpbatch/mpi/internal/element"
)

// Broadcast copies root's buf into that of every other rank. buf has the same
// length on all of them, and may be empty.
//
// No rank returns before it has heard from those that it sends to: so two ranks that both take
// themselves for the root find out.
//
// When it fails the content of buf is undefined on all ranks but root.
func Broadcast[T Number](ctx context.Context, c *Comm, buf []T, root int) error {
	var o operation
	broadcastOf(&o, c, buf, root)
	return c.run(ctx, &o)
}

// IBroadcast is Broadcast that goes on by itself. buf is the Request's until that is done.
func IBroadcast[T Number](ctx context.Context, c *Comm, buf []T, root int) *Request {
	var o operation
	broadcastOf(&o, c, buf, root)
	return c.request(ctx, &o)
}

func broadcastOf[T Number](o *operation, c *Comm, buf []T, root int) {
	o.kind, o.data, o.count = broadcastCall, element.TypeOf[T](), uint64(len(buf))
	o.out = bytesOf(buf)
	o.from(c, root)
}
