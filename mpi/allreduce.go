package mpi

import (
	"context"
	"errors"

	"ddpbatch/mpi/internal/element"
)

// AllReduce combines the buffers of all ranks element by element with op, and
// leaves the result in buf on every rank. buf has the same length on all of
// them, and may be empty.
//
// Every rank gets the same bits. Under Config.Deterministic they depend on the ranks' inputs alone: elements are
// combined along one fixed tree, whatever the length of buf, the algorithm and the transport. It pairs neighbouring ranks, then
// neighbouring pairs, and so on; one left over moves up as it is.
//
// When it fails the content of buf is undefined.
func AllReduce[T Number](ctx context.Context, c *Comm, buf []T, op Op) error {
	var o operation
	allReduceOf(&o, buf, op)
	return c.run(ctx, &o)
}

// IAllReduce is AllReduce that goes on by itself. buf is the Request's until that is done.
func IAllReduce[T Number](ctx context.Context, c *Comm, buf []T, op Op) *Request {
	var o operation
	allReduceOf(&o, buf, op)
	return c.request(ctx, &o)
}

func allReduceOf[T Number](o *operation, buf []T, op Op) {
	reductionOf(o, allReduceCall, buf, op)
	o.out = bytesOf(buf)
}

// reductionOf begins the operation of a reduction of as many elements as s has.
func reductionOf[T Number](o *operation, kind collective, s []T, op Op) {
	o.kind, o.data, o.count = kind, element.TypeOf[T](), uint64(len(s))
	switch standard, ok := op.(Standard); {
	case ok: // the common case, without a call that would move o to the heap
		o.wrong = standard.fill(&o.op, o.data)
	case op == nil:
		o.wrong = errors.New("the operation is nil")
	default:
		o.op, o.wrong = op.resolve(o.data)
	}
}
