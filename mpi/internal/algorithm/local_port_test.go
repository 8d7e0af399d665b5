package algorithm

import (
	"bytes"
	"fmt"
	"sync"
	"unsafe"
)

// localPort is a rank's Port in a localGroup.
type localPort struct {
	world *localWorld
	rank  int

	ops     []*localOp
	pending []*localOp // not waited for
	blocked *localOp   // what Wait waits for
	waits   int

	borrowed []*[]byte

	messages, bytes, round int

	// clock is the rank's own time. A port sends one message after another, each taking Beta a byte
	// and a share of Alpha; receiving is what the messages to it have taken of it so far.
	clock, sending, receiving float64
}

var _ Port = (*localPort)(nil)

func (p *localPort) Rank() int { return p.rank }
func (p *localPort) Size() int { return p.world.size }

// Scratch is full of junk.
func (p *localPort) Scratch(n int) []byte {
	b := p.borrow(n)
	fill(b, 0xCC)
	return b
}

// lent is memory that ranks have borrowed and given back: fresh memory is what takes the time of a run.
var lent sync.Pool

// borrow returns n bytes that are this rank's until the run ends.
func (p *localPort) borrow(n int) []byte {
	const align = 64
	block, _ := lent.Get().(*[]byte)
	if block == nil || len(*block) < n+align {
		b := make([]byte, max(2*n, 1<<10)+align)
		block = &b
	}
	p.borrowed = append(p.borrowed, block)
	start := -int(uintptr(unsafe.Pointer(&(*block)[0]))) & (align - 1)
	return (*block)[start : start+n : start+n]
}

// fill sets the bytes at both ends of b.
func fill(b []byte, value byte) {
	const end = 64
	for i := range min(end, len(b)) {
		b[i], b[len(b)-1-i] = value, value
	}
}

func (p *localPort) Tickets(n int) []Ticket {
	tickets := make([]Ticket, n)
	for i := range tickets {
		tickets[i] = -1
	}
	return tickets
}

func (p *localPort) Send(to int, buf []byte) Ticket {
	w := p.world
	w.mu.Lock()
	defer w.mu.Unlock()
	sent := p.borrow(len(buf))
	copy(sent, buf)
	start := max(p.clock, p.sending)
	p.sending = start + queued*w.Machine.Alpha + float64(len(buf))*w.Machine.Beta
	p.messages++
	p.bytes += len(buf)
	return p.post(&localOp{from: p.rank, to: to, send: true, buf: buf, sent: sent, done: !w.Rendezvous,
		round: p.round + 1, first: start + w.Machine.Alpha, gone: p.sending})
}

func (p *localPort) Recv(from int, buf []byte) Ticket {
	w := p.world
	w.mu.Lock()
	defer w.mu.Unlock()
	o := &localOp{from: from, to: p.rank, buf: buf}
	t := p.post(o)
	if !o.done && w.err == nil {
		fill(buf, 0xAA) // undefined until the wait
	}
	return t
}

// post notes o, after holding it against the rules. It is called with the lock.
func (p *localPort) post(o *localOp) Ticket {
	w := p.world
	switch {
	case o.from == o.to:
		w.fail(fmt.Errorf("%v: to itself", o))
	case o.from < 0 || o.from >= w.size || o.to < 0 || o.to >= w.size:
		w.fail(fmt.Errorf("%v: no such rank in a group of %d", o, w.size))
	}
	for _, other := range p.pending {
		if !(o.send && other.send) && overlap(o.buf, other.buf) {
			w.fail(fmt.Errorf("%v: its buffer is that of a pending %v", o, other))
		}
	}
	p.ops = append(p.ops, o)
	p.pending = append(p.pending, o)
	if w.err == nil {
		i := o.from*w.size + o.to
		pair := &w.pairs[i]
		sends, recvs := len(pair.sends), len(pair.recvs)
		if o.send {
			pair.sends = append(pair.sends, o)
		} else {
			pair.recvs = append(pair.recvs, o)
		}
		if min(len(pair.sends), len(pair.recvs)) > min(sends, recvs) {
			w.match(i)
		}
	}
	return Ticket(len(p.ops) - 1)
}

func overlap(a, b []byte) bool {
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	aLow, bLow := uintptr(unsafe.Pointer(&a[0])), uintptr(unsafe.Pointer(&b[0]))
	return aLow < bLow+uintptr(len(b)) && bLow < aLow+uintptr(len(a))
}

func (p *localPort) Wait(t Ticket) error {
	w := p.world
	w.mu.Lock()
	defer w.mu.Unlock()
	p.waits++
	if w.FailWait > 0 && p.rank == w.FailRank && p.waits >= w.FailWait {
		w.fail(errInjected)
	}
	if t < 0 || int(t) >= len(p.ops) {
		w.fail(fmt.Errorf("rank %d waits for ticket %d, which it was not given", p.rank, t))
		return w.err
	}
	o := p.ops[t]
	p.block(o)
	if w.err != nil {
		return w.err
	}
	if o.waited {
		return nil
	}
	o.waited = true
	for i, other := range p.pending {
		if other == o {
			p.pending[i] = p.pending[len(p.pending)-1]
			p.pending = p.pending[:len(p.pending)-1]
			break
		}
	}
	if o.send {
		p.clock = max(p.clock, o.gone)
		if !bytes.Equal(o.buf, o.sent) {
			w.fail(fmt.Errorf("%v: its buffer was changed before Wait", o))
		}
		return w.err
	}
	p.round = max(p.round, o.round)
	p.receiving += float64(len(o.buf)) * w.Machine.Beta
	p.clock = max(p.clock, p.receiving, o.first+float64(len(o.buf))*w.Machine.Beta)
	return nil
}

// block returns when o is done, or the group is broken.
func (p *localPort) block(o *localOp) {
	w := p.world
	p.blocked = o
	defer func() { p.blocked = nil }()
	for !o.done && w.err == nil {
		switch {
		case len(w.ready) > 0:
			w.deliver(w.random.IntN(len(w.ready)))
		case w.stuck():
			w.fail(fmt.Errorf("%w: %v", errDeadlock, o))
		default:
			w.changed.Wait()
		}
	}
}

// Reduce notes the time that a kernel takes for n bytes.
func (p *localPort) Reduce(n int) {
	p.world.mu.Lock()
	defer p.world.mu.Unlock()
	p.clock += float64(n) * p.world.Machine.Gamma
}

// leave ends the rank's part, whose result was err.
func (p *localPort) leave(err error) error {
	w := p.world
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running--
	w.changed.Broadcast() // what it has posted is left to the others to deliver
	for _, o := range p.ops {
		if err == nil && !o.waited {
			err = fmt.Errorf("%v was not waited for", o)
		}
	}
	switch {
	case err != nil:
		w.fail(err)
	case len(w.ready) > 0:
		w.changed.Broadcast() // who is blocked delivers
	case w.running > 0 && w.stuck():
		w.fail(errDeadlock)
	}
	return err
}
