package engine

import "math/bits"

// maxEarly is how many bytes of messages an engine stores that have come before their receive. Further messages stay in the links, and
// block their senders and everything that these send after them. A message that is announced but not sent takes address space, not memory,
// because its pages are not written.
const maxEarly = 1 << 30

// early is a message that came before its receive.
type early struct {
	next     *early
	head     header
	buf      []byte
	complete bool // otherwise the lane is still filling buf
}

// newEarly returns memory for a message, or nil if the limit is reached.
func (e *Engine) newEarly(h *header) *early {
	if h.length > uint64(e.earlyLimit) || e.earlyBytes > 0 && e.earlyBytes+1<<classOf(int(h.length))+smallest > e.earlyLimit {
		return nil
	}
	m := e.spare.get(int(h.length))
	m.head = *h
	e.earlyBytes += m.cost()
	return m
}

// drop releases the memory of a message. There may be room for another one then.
func (e *Engine) drop(m *early) {
	e.earlyBytes -= m.cost()
	e.spare.put(m)
	if len(e.unread) > 0 && e.attended() {
		e.fabric.Wake()
	}
}

// cost returns roughly the memory that a message takes: that of its payload and of its bookkeeping.
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

// take removes the first message for which f returns true, and returns it, or nil.
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

// match removes the first message for the receive op, and returns it, or nil.
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

// deliver copies an early message to its receive. If it is not complete, the rest goes there directly.
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

// detach drops a message that nobody will receive.
func (e *Engine) detach(p *peer, m *early) {
	if in := &p.data.in; in.early == m {
		in.early, in.dst = nil, nil
	}
	e.drop(m)
}

// checkEarly fails the group if a frame of another call than the group's current one has come already. mu is held.
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

// pool keeps the memory of early messages for the next ones, by powers of two.
type pool struct {
	free [25]*early // up to maxSpare
	size int        // bytes in the pool
}

const (
	maxSpare = 16 << 20 // the largest number of bytes in a pool
	smallest = 256      // the smallest number of bytes of a message's memory
)

// classOf returns the exponent of the power of two that has room for n bytes.
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
