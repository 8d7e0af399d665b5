package mpi

import "context"

// Scan leaves in buf of rank r what the buffers of ranks 0 to r combine to, element by element. The bits depend on those
// buffers alone.
func Scan[T Number](ctx context.Context, c *Comm, buf []T, op Op) error {
	var o operation
	scanOf(&o, scanCall, buf, op)
	return c.run(ctx, &o)
}

// Exscan is Scan without the rank's own buffer: of ranks 0 to r-1. Rank 0's buf is not changed.
func Exscan[T Number](ctx context.Context, c *Comm, buf []T, op Op) error {
	var o operation
	scanOf(&o, exscanCall, buf, op)
	return c.run(ctx, &o)
}

// IScan is Scan that goes on by itself. buf is the Request's until that is done.
func IScan[T Number](ctx context.Context, c *Comm, buf []T, op Op) *Request {
	var o operation
	scanOf(&o, scanCall, buf, op)
	return c.request(ctx, &o)
}

// IExscan is Exscan that goes on by itself. buf is the Request's until that is done.
func IExscan[T Number](ctx context.Context, c *Comm, buf []T, op Op) *Request {
	var o operation
	scanOf(&o, exscanCall, buf, op)
	return c.request(ctx, &o)
}

func scanOf[T Number](o *operation, kind collective, buf []T, op Op) {
	reductionOf(o, kind, buf, op)
	o.out = bytesOf(buf)
	if o.op.average && o.wrong == nil {
		o.wrong = errNoAverage
	}
}
