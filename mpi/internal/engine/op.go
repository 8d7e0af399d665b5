package engine

import (
	"sync/atomic"
)

// Op is a posted send or receive. It belongs to the code that made it, which may use it again when it is done. Until then it must stay at
// the same address.
type Op struct {
	next  *Op
	group *Group
	peer  int32 // world rank; Any for a receive from any rank
	recv  bool
	kind  frameKind
	call  Call
	buf   []byte
	moved int    // bytes transferred so far; for a send, including those of the header
	tried bool   // for a send: the link was asked to take it, and may refer to its next byte
	order uint64 // for a receive: when it was posted, to compare receives from Any with others
	head  [headerSize]byte
	done  atomic.Bool
	err   error   // set before done
	from  int     // for a receive that is done: the world rank that sent the message
	size  int     // for a receive that is done: the message's bytes
	waits *waiter // the goroutines that sleep until it is done

	pursued bool // Engine.pursued counts it
}

// Done reports whether the op is done, with or without an error.
func (op *Op) Done() bool { return op.done.Load() }

// Send posts a part of the group's current collective, for rank to.
func (g *Group) Send(op *Op, to int, buf []byte) {
	g.e.mu.Lock()
	g.send(op, kindCollective, g.call, to, buf)
	g.e.mu.Unlock()
}

// SendLater posts an empty part that is not urgent, so that its system call does not delay a message that this rank waits for. It is sent
// when this rank sends another part to the same rank, has waited for tens of microseconds, waits for op itself, or calls Flush, and at the
// latest after a quarter of a second.
func (g *Group) SendLater(op *Op, to int) {
	g.e.mu.Lock()
	defer g.e.mu.Unlock()
	p := g.e.peer(g.members[to])
	if g.prepareSend(op, kindCollective, g.call, p, nil) {
		g.e.writeLater(p.data, op)
	}
}

// Flush sends the parts that SendLater has queued.
func (g *Group) Flush() {
	g.e.mu.Lock()
	defer g.e.mu.Unlock()
	g.e.flushAll(true)
}

// Recv posts a receive of the next part of the current collective from rank from. The part must have the length of buf.
func (g *Group) Recv(op *Op, from int, buf []byte) {
	g.e.mu.Lock()
	g.receive(op, kindCollective, g.call, from, buf)
	g.e.mu.Unlock()
}

// SendMessage posts a message for rank to. label.Seq is the tag. label.Element must be the receiver's.
func (g *Group) SendMessage(op *Op, to int, label Call, buf []byte) {
	g.e.mu.Lock()
	g.send(op, kindMessage, label, to, buf)
	g.e.mu.Unlock()
}

// RecvMessage posts a receive of the next message with the tag label.Seq, from rank from or from Any. buf must be large enough for it.
func (g *Group) RecvMessage(op *Op, from int, label Call, buf []byte) {
	g.e.mu.Lock()
	g.receive(op, kindMessage, label, from, buf)
	g.e.mu.Unlock()
}

// Source returns the rank that sent the message of a receive that is done, and the message's length in bytes.
func (g *Group) Source(op *Op) (rank, size int) {
	rank, _ = g.rankOf(op.from)
	return rank, op.size
}

func (g *Group) send(op *Op, kind frameKind, call Call, to int, buf []byte) {
	p := g.e.peer(g.members[to])
	if g.prepareSend(op, kind, call, p, buf) {
		g.e.write(p.data, op)
	}
}

// prepareSend fills in op as a send and reports whether it can be written.
func (g *Group) prepareSend(op *Op, kind frameKind, call Call, p *peer, buf []byte) bool {
	op.start(g, kind, call, p.rank, buf)
	if !g.e.usable(op, p) {
		return false
	}
	h := header{kind: kind, call: op.call, length: uint64(len(buf))}
	h.encode(&op.head)
	return true
}

func (g *Group) receive(op *Op, kind frameKind, call Call, from int, buf []byte) {
	e := g.e
	op.recv = true
	e.posted++
	op.order = e.posted
	if from == Any {
		op.start(g, kind, call, Any, buf)
		op.recv = true
		e.receiveAny(op)
		return
	}
	p := e.peer(g.members[from])
	op.start(g, kind, call, p.rank, buf)
	op.recv = true
	if g.err != nil {
		e.complete(op, g.err)
		return
	}
	if m := p.match(op); m != nil {
		e.deliver(p, m, op)
		return
	}
	if !e.usable(op, p) {
		return
	}
	p.posted.push(op)
	if p.data.in.stalled {
		e.read(p.data, nil)
	}
}

// receiveAny looks for a message among the early ones of all ranks. If there is none, it queues op.
func (e *Engine) receiveAny(op *Op) {
	g := op.group
	if g.err != nil {
		e.complete(op, g.err)
		return
	}
	for _, world := range g.members {
		p := e.peers[world]
		if p == nil {
			continue
		}
		if m := p.match(op); m != nil {
			e.deliver(p, m, op)
			return
		}
	}
	e.anySent.push(op)
	for _, world := range g.members {
		if p := e.peers[world]; p != nil && p.data.in.stalled && !op.Done() {
			e.read(p.data, nil)
		}
	}
	if !op.Done() {
		e.endUnservedReceives(g) // all other ranks may have left before
	}
}

func (op *Op) start(g *Group, kind frameKind, call Call, peer int, buf []byte) {
	call.Group = g.id
	op.group, op.kind, op.call, op.peer, op.buf = g, kind, call, int32(peer), buf
	op.recv, op.moved, op.tried, op.err, op.size = false, 0, false, nil, 0
	op.done.Store(false)
}

// usable reports whether the op can proceed. If its group has failed or its peer is gone, it completes op with an error.
func (e *Engine) usable(op *Op, p *peer) bool {
	g := op.group
	rank, _ := g.rankOf(p.rank)
	switch {
	case g.err != nil:
		e.complete(op, g.err)
	case g.left != nil && g.left[rank] != nil:
		e.failOp(op, g.left[rank])
	case p.err != nil:
		e.failOp(op, p.err)
	default:
		return true
	}
	return false
}

// matches reports whether the receive op waits for a data frame.
func (op *Op) matches(h *header) bool {
	return op.kind == h.kind && op.call.Group == h.call.Group && op.call.Seq == h.call.Seq
}

// complete ends the op. From then on, the caller's memory is not used any more. mu is held.
func (e *Engine) complete(op *Op, err error) {
	op.err, op.buf = err, nil
	if op.pursued {
		op.pursued = false
		e.pursued--
	}
	w := op.waits
	op.waits = nil
	op.done.Store(true) // op may be used again from here on
	if w == nil && len(e.sleepers) > 0 {
		e.wakeReady() // a condition may be about op
	}
	for w != nil {
		next := w.next
		w.next = nil
		e.wake(w)
		w = next
	}
}

// opList is a queue of ops.
type opList struct{ first, last *Op }

func (l *opList) push(op *Op) {
	op.next = nil
	if l.first == nil {
		l.first = op
	} else {
		l.last.next = op
	}
	l.last = op
}

func (l *opList) pop() *Op {
	op := l.first
	if l.first = op.next; l.first == nil {
		l.last = nil
	}
	op.next = nil
	return op
}

// replaceFirst replaces the first op of the list.
func (l *opList) replaceFirst(op *Op) {
	op.next = l.first.next
	if l.last == l.first {
		l.last = op
	}
	l.first.next = nil
	l.first = op
}

// find returns the first op for which f returns true, and the one before it. Both may be nil.
func (l *opList) find(f func(*Op) bool) (before, op *Op) {
	for op = l.first; op != nil && !f(op); op = op.next {
		before = op
	}
	return before, op
}

// take removes the first op for which f returns true, and returns it, or nil.
func (l *opList) take(f func(*Op) bool) *Op {
	before, op := l.find(f)
	if op != nil {
		l.unlink(before, op)
	}
	return op
}

// unlink removes op, which follows before. If before is nil, op is the first.
func (l *opList) unlink(before, op *Op) {
	if before == nil {
		l.first = op.next
	} else {
		before.next = op.next
	}
	if l.last == op {
		l.last = before
	}
	op.next = nil
}

// count returns the number of ops of a kind.
func (l *opList) count(k frameKind) int {
	n := 0
	for op := l.first; op != nil; op = op.next {
		if op.kind == k {
			n++
		}
	}
	return n
}
