package engine

import (
	"math"
	"slices"
)

// pieceBytes is how much a rank that shares its core writes on one link before it turns to the next, while it waits for a receive: together
// with a header, what one packet of loopback takes, whose MTU is 64 KiB. So all peers have something to read early, and what they send
// meanwhile is read while it is in the cache. With 4 ranks on 2 cores an all-to-all of 2 MiB takes 0.7 to 0.8 of the time of whole frames.
// With 2 ranks on 2 cores, frames cut into segments of this size took 1.2 times as long,
// so ranks with a core of their own write whole frames.
const pieceBytes = 56 << 10

// write writes the op's frame, and queues what the link does not take at once. mu is held.
func (e *Engine) write(l *lane, op *Op) {
	if !e.queue(l, op) {
		return
	}
	if first := l.out.first; first != op && first.tried {
		return
	}
	e.flush(l, e.piece)
	if l.out.first != nil {
		e.writeOn(l)
	}
}

// writeLater queues the op's frame. It is written before the next frame of the lane, or by look. mu is held.
func (e *Engine) writeLater(l *lane, op *Op) {
	if e.queue(l, op) {
		e.writeOn(l)
	}
}

// queue appends the op's frame to its lane, and reports whether it did. If the lane cannot be written any more, it ends the op.
func (e *Engine) queue(l *lane, op *Op) bool {
	if l.writeEnded {
		e.endWrite(op)
		return false
	}
	l.used = true
	l.out.push(op)
	return true
}

// writeOn adds a lane to those that flushAll writes.
func (e *Engine) writeOn(l *lane) {
	if !l.busy {
		l.busy = true
		e.writing = append(e.writing, l)
	}
}

// flush writes queued frames, up to about limit bytes, until the link takes no more. It reports whether the link took anything.
func (e *Engine) flush(l *lane, limit int) bool {
	moved := false
	for op := l.out.first; op != nil && limit > 0; op = l.out.first {
		var n, asked int
		var err error
		op.tried = true
		if op.moved < headerSize {
			head, body := op.head[op.moved:], op.buf[:min(len(op.buf), limit)]
			asked = len(head) + len(body)
			n, err = l.link.Write(head, body)
		} else {
			rest := op.buf[op.moved-headerSize:]
			asked = min(len(rest), limit)
			n, err = l.link.Write(rest[:asked], nil)
		}
		op.moved += n
		limit -= n
		moved = moved || n > 0
		if err != nil {
			e.endWriting(l, err)
			return true
		}
		if op.moved == headerSize+len(op.buf) {
			l.out.pop()
			e.complete(op, nil)
		} else if n < asked {
			return moved
		}
	}
	return moved
}

// flushAll writes queued frames that had no room on their links: a piece on each link or, if all is set, as much as the links take. If all
// is set, it also writes the frames of writeLater. It reports whether a link took anything.
func (e *Engine) flushAll(all bool) bool {
	limit := e.piece
	if all {
		limit = math.MaxInt
	}
	moved := false
	for i := 0; i < len(e.writing); {
		l := e.writing[i]
		if first := l.out.first; !all && first != nil && !first.tried {
			i++
			continue
		}
		moved = e.flush(l, limit) || moved
		if l.out.first == nil {
			l.busy = false
			e.writing = slices.Delete(e.writing, i, i+1)
			continue
		}
		i++
	}
	return moved
}

// endWriting ends a lane that cannot be written any more, for the given reason. Data that can still be read may give a better reason.
func (e *Engine) endWriting(l *lane, err error) {
	l.writeEnded = true
	e.read(l.peer.control, nil)
	e.read(l.peer.data, nil)
	switch {
	case l.peer.ending != nil:
	case l.readEnded: // it has ended without giving a reason
		e.end(l.peer, lost(err))
	default:
		e.endOf(l, lost(err))
	}
	e.stopWriting(l)
}

// stopWriting ends all sends of a lane, because nobody will read them.
func (e *Engine) stopWriting(l *lane) {
	l.writeEnded = true
	for l.out.first != nil {
		e.endWrite(l.out.pop())
	}
}

// endWrite ends a send whose lane cannot be written any more.
func (e *Engine) endWrite(op *Op) {
	if op.group == nil { // a control frame
		e.complete(op, ErrLost)
		return
	}
	p := e.peers[op.peer]
	rank, _ := op.group.rankOf(p.rank)
	switch left := op.group.left; {
	case left != nil && left[rank] != nil:
		e.failOp(op, left[rank])
	case p.err != nil:
		e.failOp(op, p.err)
	case p.ending != nil:
		e.failOp(op, p.ending)
	default:
		e.failOp(op, ErrLost)
	}
}

// failOp ends an op whose peer is gone, for the given reason.
func (e *Engine) failOp(op *Op, reason error) {
	g := op.group
	rank, _ := g.rankOf(int(op.peer))
	var err error = &PeerError{Rank: rank, Err: reason}
	if !g.lenient {
		e.failGroup(g, err)
		err = g.err
	}
	e.complete(op, err)
}
