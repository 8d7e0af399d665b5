package engine

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"time"

	"ddpbatch/mpi/transport"
)

// endOf marks a lane as ended: nothing more will be read from it. The peer ends when both of its lanes have ended, or when one has ended in
// a way that does not happen when a process closes its links. mu is held.
func (e *Engine) endOf(l *lane, err error) {
	p := l.peer
	if l.readEnded {
		return
	}
	l.readEnded = true
	atOnce := !closedThere(err)
	if !errors.Is(err, ErrProtocol) && !errors.Is(err, ErrLost) && !errors.Is(err, ErrLeft) {
		err = lost(err)
	}
	if l == p.control {
		p.ending = err
		e.read(p.data, nil)               // there may be more, for example the frame that says after which call it left a group
		if !errors.Is(err, ErrProtocol) { // a peer that violates the protocol is to get the error
			e.stopWriting(p.data)
			e.stopWriting(p.control)
		}
	} else if e.read(p.control, nil); p.ending != nil { // the control lane gives the reason
		err, atOnce = p.ending, true
	}
	if atOnce {
		e.end(p, err)
	} else if p.ending == nil {
		time.AfterFunc(halfOpenLimit, func() { e.endHalfOpen(p, err) })
	}
}

// halfOpenLimit is how long a peer counts as alive whose data lane has ended but whose control lane has not.
const halfOpenLimit = time.Second

func (e *Engine) endHalfOpen(p *peer, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return
	}
	if e.read(p.control, nil); p.ending == nil {
		e.end(p, err)
	}
}

// closedThere reports whether a lane has ended in the way in which all lanes of a peer end together: after a bye frame, or because its
// process has closed the lane or has died.
func closedThere(err error) bool {
	return errors.Is(err, ErrLeft) || errors.Is(err, io.EOF)
}

// lost returns the reason why a peer's lane has ended.
func lost(err error) error {
	switch {
	case errors.Is(err, transport.ErrClosedThere):
		return ErrLeft
	case errors.Is(err, io.EOF):
		return fmt.Errorf("%w: its process ended without closing its Comm, or was killed", ErrLost)
	}
	return fmt.Errorf("%w: %w", ErrLost, err)
}

// end marks a peer as gone, for the given reason. Groups that need it fail. If it has sent a bye, only those groups fail that wait for it
// now; others fail when they first need it.
func (e *Engine) end(p *peer, err error) {
	if p.err != nil {
		return
	}
	p.data.writeEnded = true
	e.failGroupsOf(p, err) // as long as it can be notified: it may be alive, with only its link broken
	if p.err != nil {
		return // notifying it has ended it
	}
	p.err = err
	p.control.readEnded, p.data.readEnded = true, true
	p.control.writeEnded, p.data.writeEnded = true, true
	if m := p.data.in.early; m != nil { // the rest of the message will never come
		p.take(func(other *early) bool { return other == m })
		e.detach(p, m)
	}
	e.failGroupsOf(p, err)
	e.stopWriting(p.data)
	e.stopWriting(p.control)
	e.answered.Broadcast()
}

// failGroupsOf fails the groups of a peer that has ended, or marks the peer as having left them.
func (e *Engine) failGroupsOf(p *peer, err error) {
	for _, g := range e.groups {
		rank, member := g.rankOf(p.rank)
		if !member || g.err != nil {
			continue
		}
		switch gone := (&PeerError{Rank: rank, Err: err}); {
		case g.lenient:
			e.takeOps(g, p, gone)
			e.endUnservedReceives(g)
		case !errors.Is(err, ErrLeft) || e.waitsFor(g, p):
			e.failGroup(g, gone)
		default:
			e.leave(g, rank, err)
		}
	}
}

// waitsFor reports whether the group has posted a receive that only p can serve.
func (e *Engine) waitsFor(g *Group, p *peer) bool {
	for op := p.posted.first; op != nil; op = op.next {
		if op.group == g {
			return true
		}
	}
	return p.data.in.op != nil && p.data.in.op.group == g
}

// failGroup ends everything that a group does with err, unless it has failed before, and notifies its other ranks. mu is held.
func (e *Engine) failGroup(g *Group, err error) {
	text := err.Error()
	if !errors.Is(err, ErrMismatch) { // that one shows the call
		text = e.options.Describe(g.call) + ": " + text
	}
	e.failWith(g, err, text)
}

// failWith is failGroup with the text that the other ranks get.
func (e *Engine) failWith(g *Group, err error, text string) {
	if g.err != nil {
		return
	}
	g.err = err
	g.failed.Store(true)
	of := func(op *Op) bool { return op.group == g }
	for op := e.anySent.take(of); op != nil; op = e.anySent.take(of) {
		e.complete(op, err)
	}
	for _, world := range g.members {
		if p := e.peers[world]; p != nil && world != e.Rank() {
			e.withdraw(g, p, err)
		}
	}
	e.wakeGroup(g)
	e.answered.Broadcast()
	if errors.Is(err, ErrClosed) {
		return
	}
	payload := newAbort(g.rank, err, text).encode()
	for _, world := range g.members {
		if world != e.Rank() {
			e.sendControl(e.peer(world), header{kind: kindAbort, call: g.call}, payload)
		}
	}
}

// withdraw removes the ops and messages that a group has with a peer, for the given reason.
func (e *Engine) withdraw(g *Group, p *peer, err error) {
	of := func(m *early) bool { return m.head.call.Group == g.id }
	for m := p.take(of); m != nil; m = p.take(of) {
		e.detach(p, m)
	}
	e.takeOps(g, p, err)
	if in := &p.data.in; in.stalled && in.head.call.Group == g.id {
		e.read(p.data, nil)
	}
}

// takeOps ends a group's ops with a peer.
func (e *Engine) takeOps(g *Group, p *peer, err error) {
	of := func(op *Op) bool { return op.group == g }
	for op := p.posted.take(of); op != nil; op = p.posted.take(of) {
		e.complete(op, err)
	}
	l := p.data
	if op := l.in.op; op != nil && op.group == g {
		l.in.op, l.in.dst = nil, nil // the rest of the frame is dropped
		e.complete(op, err)
	}
	e.takeBack(l, g, err)
}

// takeBack removes the group's frames from the queue of a lane. If the link may have taken a part of a frame, the rest must follow, or the
// peer could not find the next frame. That rest is sent from a copy, because the caller may use its memory again.
func (e *Engine) takeBack(l *lane, g *Group, err error) {
	first := l.out.first
	partial := first != nil && first.group == g && first.tried && !l.writeEnded
	for {
		op := l.out.take(func(op *Op) bool { return op.group == g && !(partial && op == first) })
		if op == nil {
			break
		}
		e.complete(op, err)
	}
	if !partial {
		return
	}
	rest := &Op{peer: first.peer, kind: first.kind, moved: first.moved, tried: true, head: first.head, buf: first.buf}
	if rest.moved > headerSize { // only what is still to be written is worth a copy
		rest.buf, rest.moved = rest.buf[rest.moved-headerSize:], headerSize
	}
	rest.buf = bytes.Clone(rest.buf)
	l.out.replaceFirst(rest)
	e.complete(first, err)
}
