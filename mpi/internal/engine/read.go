package engine

import (
	"errors"
	"fmt"
	"io"
)

// readBuffer lets a header and a small payload arrive in one read; the rest of a
// large payload is read straight into the receiver's buffer.
const readBuffer = 8 << 10

// readAtOnce is how many bytes are taken from a lane before others get their turn: a peer that never stops would
// otherwise hold the engine for itself.
const readAtOnce = 1 << 20

// inbound is the frame that is arriving on a lane.
type inbound struct {
	buf     []byte // what was read ahead is buf[r:w]
	r, w    int
	head    header
	inFrame bool   // head is that of a frame whose payload is not complete
	stalled bool   // head's payload has nowhere to go until it is received
	dst     []byte // where the payload goes; nil in a frame of nobody's: it is dropped
	got     uint64
	op      *Op    // whose buffer dst is, or nil
	early   *early // whose buffer dst is, or nil
	budget  int    // of the bytes that may still be taken at once
}

// read takes what there is on the lane, or, unless that is nil, as much of it as makes until done. It tells
// whether that was anything. mu is held.
func (e *Engine) read(l *lane, until *Op) bool {
	moved := e.readFrames(l, until)
	if p := l.peer; p.ending != nil && l == p.data && until == nil && p.exhausted() {
		e.end(p, p.ending)
	}
	return moved
}

func (e *Engine) readFrames(l *lane, until *Op) bool {
	in := &l.in
	in.budget = readAtOnce
	moved := false
	for !l.readEnded {
		if in.budget <= 0 || until != nil && until.Done() || in.stalled && !e.route(l) {
			e.revisit(l)
			return moved
		}
		if in.inFrame {
			more, err := e.readPayload(l)
			moved = moved || more
			if err != nil {
				e.endOf(l, err)
				return true
			}
			if in.inFrame && in.budget > 0 {
				return moved
			}
			continue
		}
		if in.w-in.r < headerSize {
			n, err := in.fill(l)
			if err != nil {
				e.endOf(l, err)
				return true
			}
			if n == 0 {
				return moved
			}
			moved = true
			if in.w-in.r < headerSize {
				continue // until there is nothing: the end of the stream may have come with it
			}
		}
		h, err := decodeHeader((*[headerSize]byte)(in.buf[in.r:]))
		if err == nil && !h.kind.isGoodbye() && l != l.peer.lane(h.kind) {
			err = fmt.Errorf("%w: a frame of kind %d on the link for others", ErrProtocol, h.kind)
		}
		if err != nil {
			e.endOf(l, err)
			return true
		}
		in.r += headerSize
		in.head, in.inFrame, in.got = h, true, 0
		in.dst, in.op, in.early = nil, nil, nil
		e.arrive(l)
	}
	return moved
}

// revisit makes the next look read the lane, as the fabric need not tell of what is left there: it has told already, or it is
// in the buffer.
func (e *Engine) revisit(l *lane) {
	if !l.isUnread && (l.in.stalled || l.in.budget <= 0 || l.in.r < l.in.w) {
		l.isUnread = true
		e.unread = append(e.unread, l)
		if l.in.budget <= 0 && e.attended() {
			e.fabric.Wake()
		}
	}
}

// fill reads ahead.
func (in *inbound) fill(l *lane) (int, error) {
	if in.buf == nil {
		in.buf = make([]byte, readBuffer)
	}
	if in.r > 0 {
		in.w = copy(in.buf, in.buf[in.r:in.w])
		in.r = 0
	}
	n, err := l.link.Read(in.buf[in.w:])
	in.w += n
	in.budget -= n
	if err != nil && in.w > 0 && errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// readPayload takes what there is of the payload, and ends the frame where that was the rest.
func (e *Engine) readPayload(l *lane) (bool, error) {
	in := &l.in
	moved := false
	for in.got < in.head.length {
		if in.budget <= 0 {
			return moved, nil
		}
		n := in.takeAhead()
		if n == 0 {
			var err error
			if n, err = in.takeDirect(l); err != nil {
				if errors.Is(err, io.EOF) {
					err = io.ErrUnexpectedEOF
				}
				return moved, fmt.Errorf("in the middle of a frame: %w", err)
			}
			if n == 0 {
				return moved, nil
			}
		}
		moved = true
		in.got += uint64(n)
		if in.op != nil {
			in.op.moved = int(in.got)
		}
	}
	in.inFrame = false
	e.finish(l)
	return true, nil
}

// takeAhead uses what was read ahead.
func (in *inbound) takeAhead() int {
	have := in.buf[in.r:in.w]
	if left := in.head.length - in.got; uint64(len(have)) > left {
		have = have[:left]
	}
	if in.dst != nil {
		copy(in.dst[in.got:], have)
	}
	in.r += len(have)
	return len(have)
}

// takeDirect reads past the buffer, which is empty.
func (in *inbound) takeDirect(l *lane) (int, error) {
	if in.dst != nil {
		if rest := in.dst[in.got:]; len(rest) > len(in.buf)/2 {
			n, err := l.link.Read(rest[:min(len(rest), in.budget)])
			in.budget -= n
			return n, err
		}
	}
	_, err := in.fill(l)
	if err != nil {
		return 0, err
	}
	return in.takeAhead(), nil
}

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
	if _, closed := e.closedGroups[h.call.Group]; closed {
		return // nobody's
	}
	e.route(l)
}

// admit checks a frame against what this rank has called, before anyone waits for it: ranks
// that made different calls may both wait for a third, or not at all.
func (g *Group) admit(p *peer, h *header) error {
	rank, member := g.rankOf(p.rank)
	if !member {
		return fmt.Errorf("%w: rank %d of all sent to a group that it is not of", ErrProtocol, p.rank)
	}
	switch {
	case h.kind != kindCollective || h.call.Seq > g.call.Seq || h.call == g.call:
		return nil
	case h.call == g.past[h.call.Seq%pastCalls] && p.isDue(h):
		return nil // a receive of that call is waited for in a later one
	}
	return g.mismatch(rank, h.call)
}

// route finds where the payload of a data frame goes: the receive that waits for it, or memory
// of its own until there is one. It tells whether there was any.
func (e *Engine) route(l *lane) bool {
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
		return e.routeTo(l, op)
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

// routeTo leads the payload into the op's buffer, if it fits.
func (e *Engine) routeTo(l *lane, op *Op) bool {
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
	op.size = int(size)
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
		err = MismatchOfLengths(g.rank, rank, op.call, uint64(len(op.buf)), h.length, e.options.Describe)
	}
	e.failGroup(g, err)
	e.complete(op, g.err)
}

// finish ends a frame whose payload is complete. mu is held.
func (e *Engine) finish(l *lane) {
	in := &l.in
	head, dst, op, m := in.head, in.dst, in.op, in.early
	in.dst, in.op, in.early = nil, nil, nil // receiveControl may go on to the next frame
	switch {
	case op != nil:
		e.complete(op, nil)
	case m != nil:
		m.complete = true
	case !head.kind.carriesData():
		e.receiveControl(l, &head, dst)
	}
}
