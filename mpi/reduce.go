package mpi

import "context"

// Reduce is AllReduce whose result only root gets. The others' buffers are not changed.
func Reduce[T Number](ctx context.Context, c *Comm, buf []T, root int, op Op) error {
	var o operation
	reduceOf(&o, c, buf, root, op)
	return c.run(ctx, &o)
}

// IReduce is Reduce that goes on by itself. buf is the Request's until that is done.
func IReduce[T Number](ctx context.Context, c *Comm, buf []T, root int, op Op) *Request {
	var o operation
	reduceOf(&o, c, buf, root, op)
	return c.request(ctx, &o)
}

func reduceOf[T Number](o *operation, c *Comm, buf []T, root int, op Op) {
	reductionOf(o, reduceCall, buf, op)
	o.out = bytesOf(buf)
	o.from(c, root)
}
