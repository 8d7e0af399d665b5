package engine

import (
	"errors"
	"math/bits"
	"slices"

	"ddpbatch/mpi/transport"
)

// peer is what an engine knows of one other rank.
type peer struct {
	rank    int // in the world
	control *lane
	data    *lane

	posted opList // receives from this rank alone
	early  *early // messages that came before their receive, oldest first
	tail   *early // the youngest of them
	ending error  // its control lane has ended, for this reason, and there may be more on the other
	err    error  // why nothing will come from it any more; all that came before has been read
}

// lane is a link with what is under way on it.
type lane struct {
	peer       *peer
	link       transport.Link
	out        opList // the first may be written in part
	in         inbound
	silentEnd  bool // it is memory, which tells nothing of its end
	readEnded  bool // nothing more will be read
	writeEnded bool // nothing more can be written
	busy       bool // it is among Engine.writing

	isUnread bool // it is among Engine.unread
}

func newPeer(rank int, fabric transport.Fabric) *peer {
	p := &peer{rank: rank}
	p.control = &lane{peer: p, link: fabric.Control(rank)}
	p.data = &lane{peer: p, link: fabric.Data(rank), silentEnd: slices.Contains(fabric.Shared(), rank)}
	return p
}

// lane is the one that frames of a kind go by.
func (p *peer) lane(k frameKind) *lane {
	if k.goesByData() {
		return p.data
	}
	return p.control
}

// exhausted tells whether nothing more is to be expected of a peer whose control lane has ended: what it sent before is read,
// but that nobody waits for the last words of one that was killed.
func (p *peer) exhausted() bool {
	l := p.data
	switch {
	case l.readEnded:
		return true
	case l.in.stalled:
		return !errors.Is(p.ending, ErrLeft)
	}
	return l.silentEnd && !l.isUnread
}

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
