package engine

import "fmt"

// arrive decides what becomes of the frame whose header has just come. mu is held.
func (e *Engine) arrive(l *lane) {
	in := &l.in
	h := &in.head
	if !h.kind.carriesData() {
		if h.length > 0 {
			in.dst = make([]byte, h.length)
		}
		return
	}
	if _, closed := e.gone[h.call.Group]; closed {
		return // nobody's
	}
	e.place(l)
}

// admit checks a frame against what this rank has called, before anyone waits for it: ranks
// that made different calls may both wait for a third, or not at all.
func (g *Group) admit(p *peer, h *header) error {
	rank, member := g.rankOf(p.rank)
	if !member {
		return fmt.Errorf("%w: rank %d of all sent to a group that it is not of", ErrProtocol, p.rank)
	}
	if h.kind != kindCollective || h.call.Seq > g.call.Seq || h.call == g.call {
		return nil
	}
	return g.mismatch(rank, h.call)
}

// place finds where the payload of a data frame goes: the receive that waits for it, or memory
// of its own until there is one. It tells whether there was a place.
func (e *Engine) place(l *lane) bool {
	in := &l.in
	h := &in.head
	in.stalled = false
	if g := e.groups[h.call.Group]; g != nil {
		if g.err != nil {
			return true // nobody's
		}
		if err := g.admit(l.peer, h); err != nil {
			e.failGroup(g, err)
			return true
		}
	}
	if op := e.matching(l.peer, h); op != nil {
		return e.direct(l, op)
	}
	m := e.newEarly(h)
	if m == nil {
		in.stalled = true
		return false
	}
	l.peer.keep(m)
	in.early, in.dst = m, m.buf
	return true
}

// matching finds the receive that waits for a frame, the one first posted, and takes it off its list.
func (e *Engine) matching(p *peer, h *header) *Op {
	wanted := func(op *Op) bool { return op.matches(h) }
	before, op := p.posted.find(wanted)
	list := &p.posted
	if e.anySent.first != nil {
		if last, wild := e.anySent.find(wanted); wild != nil && (op == nil || wild.order < op.order) {
			list, before, op = &e.anySent, last, wild
		}
	}
	if op != nil {
		list.unlink(before, op)
	}
	return op
}

// direct leads the payload into the op's buffer, if it fits.
func (e *Engine) direct(l *lane, op *Op) bool {
	in := &l.in
	if err := op.accept(&in.head); err != nil {
		e.refuse(op, l.peer, &in.head, err)
		return true
	}
	op.from = l.peer.rank
	in.op, in.dst = op, op.buf[:in.head.length]
	return true
}

// accept checks that what a frame announces is what the receive can take.
func (op *Op) accept(h *header) error {
	have, size := uint64(len(op.buf)), h.length
	switch {
	case op.kind == kindMessage && op.call.Element != h.call.Element:
		return ErrMismatch
	case op.kind == kindMessage && size > have:
		return fmt.Errorf("%w: %d bytes, and room for %d", ErrTruncated, size, have)
	case op.kind == kindCollective && size != have:
		return ErrMismatch
	}
	op.got, op.size = h.call, int(size)
	return nil
}

// refuse fails a receive that a frame does not fit, and its group with it.
func (e *Engine) refuse(op *Op, p *peer, h *header, err error) {
	g := op.group
	rank, _ := g.rankOf(p.rank)
	switch {
	case err != ErrMismatch:
		err = &PeerError{Rank: rank, Err: err}
	case op.kind == kindMessage:
		err = Mismatch(g.rank, rank, op.call, h.call, e.options.Describe, e.options.DescribeFully)
	default: // the same call, but for counts that are each rank's own
		err = &MismatchError{
			Here: g.rank, There: rank,
			HereCall:  fmt.Sprintf("%s, with %d bytes due from rank %d", e.options.Describe(op.call), len(op.buf), rank),
			ThereCall: fmt.Sprintf("%s, with %d bytes for rank %d", e.options.Describe(h.call), h.length, g.rank),
		}
	}
	e.failGroup(g, err)
	e.complete(op, g.err)
}

// finish ends a frame whose payload is complete. mu is held.
func (e *Engine) finish(l *lane) {
	in := &l.in
	head, dst, op, m := in.head, in.dst, in.op, in.early
	in.dst, in.op, in.early = nil, nil, nil // hear may go on to the next frame
	switch {
	case op != nil:
		e.complete(op, nil)
	case m != nil:
		m.complete = true
	case !head.kind.carriesData():
		e.hear(l, &head, dst)
	}
}
