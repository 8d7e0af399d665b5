package mpi

import (
	"context"
	"unsafe"

	"ddpbatch/mpi/internal/algorithm"
	"ddpbatch/mpi/internal/engine"
)

// port is the algorithm.Port of one Comm. It serves one call after another.
type port struct {
	group   *engine.Group // nil in a world of one rank
	ctx     context.Context
	ops     []*engine.Op // the first used of them are posted
	used    int
	later   []*engine.Op // of Notify and Expect, in this call
	earlier []*engine.Op // the same, in the call before
	spare   []*engine.Op // to be used again
	scratch arena
	handles arena
}

var _ algorithm.Port = (*port)(nil)

// begin prepares the port for a call.
func (p *port) begin(ctx context.Context) {
	p.ctx, p.used = ctx, 0
	if len(p.later) > 0 {
		p.earlier, p.later = append(p.earlier, p.later...), p.later[:0]
		p.group.Flush() // a rank may wait for these at the end of this call
	}
	p.scratch.reset()
	p.handles.reset()
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

func (p *port) Send(to int, buf []byte) algorithm.Handle {
	op, handle := p.next()
	p.group.Send(op, to, buf)
	return handle
}

func (p *port) Recv(from int, buf []byte) algorithm.Handle {
	op, handle := p.next()
	p.group.Recv(op, from, buf)
	return handle
}

func (p *port) Wait(h algorithm.Handle) error { return p.group.Wait(p.ctx, p.ops[h]) }

// Notify implements algorithm.Port.
func (p *port) Notify(to int) { p.group.SendLater(p.nextLater(), to) }

// Expect implements algorithm.Port.
func (p *port) Expect(from int) { p.group.Recv(p.nextLater(), from, nil) }

// nextLater returns an op that the next call waits for.
func (p *port) nextLater() *engine.Op {
	if len(p.spare) == 0 {
		p.spare = append(p.spare, new(engine.Op))
	}
	last := len(p.spare) - 1
	op := p.spare[last]
	p.spare, p.later = p.spare[:last], append(p.later, op)
	return op
}

// catchUp waits for the operations that the call before begin has not waited for.
func (p *port) catchUp() error {
	for _, op := range p.earlier {
		if err := p.group.Wait(p.ctx, op); err != nil {
			return err
		}
	}
	p.spare, p.earlier = append(p.spare, p.earlier...), p.earlier[:0]
	return nil
}

func (p *port) next() (*engine.Op, algorithm.Handle) {
	if p.used == len(p.ops) {
		p.ops = append(p.ops, new(engine.Op))
	}
	p.used++
	return p.ops[p.used-1], algorithm.Handle(p.used - 1)
}

func (p *port) Scratch(n int) []byte { return p.scratch.take(n) }

func (p *port) Handles(n int) []algorithm.Handle {
	const size = int(unsafe.Sizeof(algorithm.Handle(0)))
	return unsafe.Slice((*algorithm.Handle)(unsafe.Pointer(unsafe.SliceData(p.handles.take(max(n, 1)*size)))), n)
}

// arena is memory for the duration of a call. It grows to what calls need, and then does not allocate. It releases memory that calls have
// not needed for a while.
type arena struct {
	words []uint64 // all of the memory
	used  int      // words in use
	wants int      // words that the call has asked for
	idle  int      // number of calls in a row that needed little of it
}

const (
	// cacheLine is the alignment of buffers, so that different cores do not write to one cache line.
	cacheLine = 64

	maxIdleCalls = 1000    // number of calls that need little of an arena before its memory is released
	smallArena   = 1 << 17 // number of words up to which memory is kept
)

// reset prepares the arena for a call.
func (a *arena) reset() {
	switch {
	case len(a.words) <= smallArena || a.wants > len(a.words)/4:
		a.idle = 0
	default:
		if a.idle++; a.idle == maxIdleCalls {
			a.words, a.idle = nil, 0
		}
	}
	a.used = 0
	a.wants = 0
}

// take returns n bytes of undefined content, aligned for every element type.
func (a *arena) take(n int) []byte {
	words := (n + cacheLine - 1) / cacheLine * (cacheLine / 8)
	a.wants += words
	if a.wants > len(a.words) {
		// The call keeps the parts that it has got so far; later calls find room for all in the new memory.
		a.words, a.used = make([]uint64, a.wants), 0
	}
	part := a.words[a.used : a.used+words]
	a.used += words
	return bytesOf(part)[:n:n]
}
