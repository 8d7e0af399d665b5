package mpi

import (
	"context"
)

// Request is a collective or a message under way, which proceeds by itself. Its methods are safe for concurrent use.
//
// Collectives of one Comm are executed one after another, in the order in which they were called.
type Request struct {
	call    *queuedCall // of a collective
	message *message    // of a message
}

// Wait returns when the request is done, with its error. If ctx ends first, a message breaks the Comm, because otherwise its buffer would
// still be in use; a collective goes on until its own context ends.
func (r *Request) Wait(ctx context.Context) error {
	if r.message != nil {
		return r.message.wait(ctx)
	}
	select {
	case <-r.call.done:
		return r.call.err
	default:
	}
	select {
	case <-r.call.done:
		return r.call.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Done reports whether the request is done. If it is, Wait returns at once.
func (r *Request) Done() bool {
	if r.message != nil {
		return r.message.isDone()
	}
	select {
	case <-r.call.done:
		return true
	default:
		return false
	}
}

// Status describes what a receive that is done has received. For other requests it returns the zero Status.
func (r *Request) Status() Status {
	if r.message == nil || !r.message.op.Done() || r.message.wrong != nil {
		return Status{}
	}
	return r.message.status()
}

// WaitAll waits for several requests, and returns the first error.
func WaitAll(ctx context.Context, requests ...*Request) error {
	var first error
	for _, r := range requests {
		if err := r.Wait(ctx); err != nil && first == nil {
			first = err
		}
	}
	return first
}

func (c *Comm) request(ctx context.Context, o *operation) *Request {
	o.using = c.algorithm
	return &Request{call: c.core.start(&queuedCall{ctx: ctx, op: *o})}
}
