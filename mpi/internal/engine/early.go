package engine

import "math/bits"

// maxEarly is how many bytes of messages an engine keeps that came before their
// receive. What is more stays in the links, and keeps its senders waiting; and whatever they send behind it. A length that is
// announced and not sent costs addresses, not memory: what is not written is not there.
const maxEarly = 1 << 30

// early is a message that came before its receive.
type early struct {
	next     *early
	head     header
	buf      []byte
	complete bool // else the lane is still filling buf
}

// newEarly finds memory for a message, or returns nil where there is to be no more.
func (e *Engine) newEarly(h *header) *early {
	if h.length > uint64(e.earlyLimit) || e.earlyBytes > 0 && e.earlyBytes+1<<classOf(int(h.length))+smallest > e.earlyLimit {
		return nil
	}
	m := e.spare.get(int(h.length))
	m.head = *h
	e.earlyBytes += m.cost()
	return m
}

// drop gives the memory of a message back. There may be room for another now.
func (e *Engine) drop(m *early) {
	e.earlyBytes -= m.cost()
	e.spare.put(m)
	if len(e.unread) > 0 && e.attended() {
		e.fabric.Wake()
	}
}

// cost is the memory that a message takes, roughly: that of its payload and of what there is about it.
func (m *early) cost() int { return cap(m.buf) + smallest }

// keep queues a message.
func (p *peer) keep(m *early) {
	m.next = nil
	if p.early == nil {
		p.early = m
	} else {
		p.tail.next = m
	}
	p.tail = m
}

// take removes the first message that f chooses, or returns nil.
func (p *peer) take(f func(*early) bool) *early {
	var before *early
	for m := p.early; m != nil; before, m = m, m.next {
		if f(m) {
			p.unlink(before, m)
			return m
		}
	}
	return nil
}

// match removes the first message that the receive waits for, or returns nil.
func (p *peer) match(op *Op) *early {
	return p.take(func(m *early) bool { return op.matches(&m.head) })
}

func (p *peer) unlink(before, m *early) {
	if before == nil {
		p.early = m.next
	} else {
		before.next = m.next
	}
	if p.tail == m {
		p.tail = before
	}
	m.next = nil
}

// deliver gives a message that came early to its receive; what of it is still to come goes there directly.
func (e *Engine) deliver(p *peer, m *early, op *Op) {
	if err := op.accept(&m.head); err != nil {
		e.detach(p, m)
		e.refuse(op, p, &m.head, err)
		return
	}
	op.from = p.rank
	in := &p.data.in
	if m.complete {
		copy(op.buf, m.buf)
		e.complete(op, nil)
	} else {
		copy(op.buf, m.buf[:in.got])
		in.early, in.op, in.dst = nil, op, op.buf[:len(m.buf)]
	}
	e.drop(m)
}

// detach lets go of a message that nobody will receive.
func (e *Engine) detach(p *peer, m *early) {
	if in := &p.data.in; in.early == m {
		in.early, in.dst = nil, nil
	}
	e.drop(m)
}

// checkEarly fails the group if a frame of another call than the one that begins has come already. mu is held.
func (e *Engine) checkEarly(g *Group) {
	for rank, world := range g.members {
		p := e.peers[world]
		if p == nil {
			continue
		}
		for m := p.early; m != nil; m = m.next {
			h := &m.head
			if h.kind == kindCollective && h.call.Group == g.id && h.call.Seq <= g.call.Seq && h.call != g.call {
				e.failGroup(g, g.mismatch(rank, h.call))
				return
			}
		}
	}
}

// pool keeps the memory of early messages, by powers of two, for the next ones.
type pool struct {
	free [25]*early // up to maxSpare
	size int        // bytes in it
}

const (
	maxSpare = 16 << 20 // bytes that a pool keeps
	smallest = 256      // bytes of a message's memory
)

// classOf is which power of two has room for n bytes.
func classOf(n int) int { return bits.Len(uint(max(n, smallest) - 1)) }

func (p *pool) get(n int) *early {
	class := classOf(n)
	if class >= len(p.free) || p.free[class] == nil {
		return &early{buf: make([]byte, n, 1<<class)}
	}
	m := p.free[class]
	p.free[class] = m.next
	p.size -= cap(m.buf)
	*m = early{buf: m.buf[:n]}
	return m
}

func (p *pool) put(m *early) {
	if p.size+cap(m.buf) > maxSpare {
		return
	}
	class := classOf(cap(m.buf))
	p.size += cap(m.buf)
	m.next = p.free[class]
	p.free[class] = m
}
