package mpi

import (
	"context"
	"unsafe"

	"ddpbatch/mpi/internal/algorithm"
	"ddpbatch/mpi/internal/engine"
)

// port is the algorithm.Port of one Comm, for one call after another.
type port struct {
	group   *engine.Group // nil in a world of one rank
	ctx     context.Context
	ops     []*engine.Op // the first used are posted
	used    int
	scratch arena
	tickets arena
}

var _ algorithm.Port = (*port)(nil)

// begin makes the port ready for a call.
func (p *port) begin(ctx context.Context) {
	p.ctx, p.used = ctx, 0
	p.scratch.reset()
	p.tickets.reset()
}

func (p *port) Rank() int {
	if p.group == nil {
		return 0
	}
	return p.group.Rank()
}

func (p *port) Size() int {
	if p.group == nil {
		return 1
	}
	return p.group.Size()
}

func (p *port) Send(to int, buf []byte) algorithm.Ticket {
	op, ticket := p.next()
	p.group.Send(op, to, buf)
	return ticket
}

func (p *port) Recv(from int, buf []byte) algorithm.Ticket {
	op, ticket := p.next()
	p.group.Recv(op, from, buf)
	return ticket
}

func (p *port) Wait(t algorithm.Ticket) error { return p.group.Wait(p.ctx, p.ops[t]) }

func (p *port) next() (*engine.Op, algorithm.Ticket) {
	if p.used == len(p.ops) {
		p.ops = append(p.ops, new(engine.Op))
	}
	p.used++
	return p.ops[p.used-1], algorithm.Ticket(p.used - 1)
}

func (p *port) Scratch(n int) []byte { return p.scratch.take(n) }

func (p *port) Tickets(n int) []algorithm.Ticket {
	const size = int(unsafe.Sizeof(algorithm.Ticket(0)))
	return unsafe.Slice((*algorithm.Ticket)(unsafe.Pointer(unsafe.SliceData(p.tickets.take(max(n, 1)*size)))), n)
}
