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
	if p := l.peer; p.ending != nil && l == p.data && until == nil && p.spent() {
		e.end(p, p.ending)
	}
	return moved
}

func (e *Engine) readFrames(l *lane, until *Op) bool {
	in := &l.in
	in.budget = readAtOnce
	moved := false
	for !l.over {
		if in.budget <= 0 || until != nil && until.Done() || in.stalled && !e.place(l) {
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
		if err == nil && h.kind != kindBye && l != l.peer.lane(h.kind) {
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
	if !l.again && (l.in.stalled || l.in.budget <= 0 || l.in.r < l.in.w) {
		l.again = true
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
