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
	if e.anySent.first == nil {
		return p.posted.match(h)
	}
	op, wild := p.posted.peek(h), e.anySent.peek(h)
	if wild != nil && (op == nil || wild.order < op.order) {
		return e.anySent.match(h)
	}
	return p.posted.match(h)
}

// peek is match, but leaves the op in the list.
func (l *opList) peek(h *header) *Op {
	for op := l.first; op != nil; op = op.next {
		if op.matches(h) {
			return op
		}
	}
	return nil
}

// direct leads the payload into the op's buffer, if it fits.
func (e *Engine) direct(l *lane, op *Op) bool {
	in := &l.in
	if err := op.accept(&in.head); err != nil {
		e.refuse(op, l.peer, err)
		in.dst = nil
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
		return fmt.Errorf("%w: a frame of %d bytes where %d are due", ErrProtocol, size, have)
	}
	op.got, op.size = h.call, int(size)
	return nil
}

// refuse fails a receive, and its group with it.
func (e *Engine) refuse(op *Op, p *peer, err error) {
	g := op.group
	rank, _ := g.rankOf(p.rank)
	if err == ErrMismatch {
		err = &MismatchError{Here: g.rank, There: rank, HereCall: e.options.Describe(op.call), ThereCall: "a message of another type"}
	} else {
		err = &PeerError{Rank: rank, Err: err}
	}
	e.failGroup(g, err)
	e.complete(op, g.err)
}

// finish ends a frame whose payload is complete. mu is held.
func (e *Engine) finish(l *lane) {
	in := &l.in
	switch {
	case in.op != nil:
		e.complete(in.op, nil)
	case in.early != nil:
		in.early.complete = true
	case !in.head.kind.carriesData():
		e.hear(l.peer, &in.head, in.dst)
	}
	in.dst, in.op, in.early = nil, nil, nil
}
