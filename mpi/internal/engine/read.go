package engine

import (
	"errors"
	"fmt"
	"io"
)

// readBuffer is large enough for a header and a small payload to arrive in one read. The rest of a large payload is read directly into the
// receiver's buffer.
const readBuffer = 8 << 10

// readAtOnce is the number of bytes that are read from a lane before other lanes get their turn. Otherwise a peer that never stops sending
// would keep the engine for itself.
const readAtOnce = 1 << 20

// inbound is the frame that is arriving on a lane.
type inbound struct {
	buf     []byte // buf[r:w] has been read but not used
	r, w    int
	head    header
	inFrame bool   // head is the header of a frame whose payload is not complete
	stalled bool   // there is no memory for head's payload until a receive is posted
	dst     []byte // where the payload goes; nil if it is dropped
	got     uint64
	op      *Op    // dst is its buffer; or nil
	early   *early // dst is its buffer; or nil
	budget  int    // how many more bytes may be read at once
}

// read reads what has arrived on the lane. If until is not nil, it stops when until is done. It reports whether it has read anything. mu is
// held.
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
				continue // until there is nothing more: the end of the stream may have come with it
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

// revisit makes the next look read the lane. The fabric need not announce what is left there, as it has announced it already, or as it is
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

// fill reads into the buffer.
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

// readPayload reads what has arrived of the payload. If that completes the payload, it ends the frame.
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

// takeAhead uses data in the buffer.
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

// takeDirect reads from the link. The buffer is empty.
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

// arrive decides where the frame goes whose header has just come. mu is held.
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
		return // it is dropped
	}
	e.route(l)
}

// admit compares a frame with this rank's calls before any goroutine waits for it: ranks that made different calls may both wait for a
// third one, or for none.
func (g *Group) admit(p *peer, h *header) error {
	rank, member := g.rankOf(p.rank)
	if !member {
		return fmt.Errorf("%w: world rank %d sent to a group that it does not belong to", ErrProtocol, p.rank)
	}
	switch {
	case h.kind != kindCollective || h.call.Seq > g.call.Seq || h.call == g.call:
		return nil
	case h.call == g.past[h.call.Seq%pastCalls] && p.isDue(h):
		return nil // a later call waits for a receive of that call
	}
	return g.mismatch(rank, h.call)
}

// route finds the destination of the payload of a data frame: the receive that waits for it or, if there is none yet, memory for an early
// message. It reports whether there is one.
func (e *Engine) route(l *lane) bool {
	in := &l.in
	h := &in.head
	in.stalled = false
	if g := e.groups[h.call.Group]; g != nil {
		if g.err != nil {
			return true // the payload is dropped
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

// matching returns the receive for a frame, the one that was posted first, and removes it from its list. It returns nil if there is none.
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

// routeTo directs the payload into the op's buffer, if it fits.
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

// accept checks that the receive can take the frame.
func (op *Op) accept(h *header) error {
	have, size := uint64(len(op.buf)), h.length
	switch {
	case op.kind == kindMessage && op.call.Element != h.call.Element:
		return ErrMismatch
	case op.kind == kindMessage && size > have:
		return fmt.Errorf("%w: it has %d bytes, the buffer has %d", ErrTruncated, size, have)
	case op.kind == kindCollective && size != have:
		return ErrMismatch
	}
	op.size = int(size)
	return nil
}

// refuse fails a receive that a frame does not fit, and its group.
func (e *Engine) refuse(op *Op, p *peer, h *header, err error) {
	g := op.group
	rank, _ := g.rankOf(p.rank)
	switch {
	case err != ErrMismatch:
		err = &PeerError{Rank: rank, Err: err}
	case op.kind == kindMessage:
		err = Mismatch(g.rank, rank, op.call, h.call, e.options.Describe, e.options.DescribeFully)
	default: // the calls are equal, but not the counts, which each rank chooses itself
		err = MismatchOfLengths(g.rank, rank, op.call, uint64(len(op.buf)), h.length, e.options.Describe)
	}
	e.failGroup(g, err)
	e.complete(op, g.err)
}

// finish ends a frame whose payload is complete. mu is held.
func (e *Engine) finish(l *lane) {
	in := &l.in
	head, dst, op, m := in.head, in.dst, in.op, in.early
	in.dst, in.op, in.early = nil, nil, nil // receiveControl may read the next frame
	switch {
	case op != nil:
		e.complete(op, nil)
	case m != nil:
		m.complete = true
	case !head.kind.carriesData():
		e.receiveControl(l, &head, dst)
	}
}
