package ucx

import (
	"fmt"
	"io"
	"unsafe"

	"ddpbatch/internal/clib"
)

// message is a message that has come, at least in part, but has not been received.
type message struct {
	handle uintptr // ucp_tag_message_h
	length uint64
}

// arrival is a message that is being received.
type arrival struct {
	active   bool
	ended    bool // it has arrived completely
	request  uintptr
	memory   []byte
	fromSlab bool // memory is a piece of the slab rather than the caller's
}

// Read fills buf with the bytes that have come. A long message is received in place if buf is in memory of Alloc: Read returns 0
// until all of that message has arrived, and until then buf must not be used for anything else.
func (l *Link) Read(buf []byte) (int, error) {
	w := l.worker
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.worker == 0 {
		return 0, errClosed
	}
	n := 0
	for polled := false; n < len(buf); {
		m, more := l.take(buf[n:])
		n += m
		if more {
			continue
		}
		if polled || n > 0 {
			break
		}
		w.poll()
		polled = true
	}
	l.read += uint64(n)
	if l.read-l.reported >= window/2 && l.sendErr == nil && !l.gone {
		l.sendErr = l.report()
	}
	if l.piece != nil || !l.incoming.active && l.arrived.len() > 0 {
		l.notify() // buf is full, and more has come
	}
	switch {
	case n > 0 || len(buf) == 0:
		return n, nil
	case l.gone && (w.isIdle || l.readErr != nil):
		return 0, io.EOF // a message that is still arriving will not complete; its memory is not reused
	case l.readErr != nil:
		return 0, l.readErr
	case l.failed != nil && w.isIdle:
		return 0, l.failed
	case l.gone || l.failed != nil:
		l.notify() // UCX may have more messages
	}
	return 0, nil
}

// report sends a message without bytes, whose tag says how far this rank has read.
func (l *Link) report() error {
	request, err := l.send(nil, 0)
	if request != 0 {
		l.copies.push(sent{request, nil})
	}
	return err
}

// take copies bytes of one message to buf, and reports whether there may be more.
func (l *Link) take(buf []byte) (n int, more bool) {
	if l.piece != nil {
		return l.copyOut(buf), true
	}
	if !l.incoming.active && !l.receiveNext(buf) {
		return 0, false
	}
	if !l.incomingEnded() {
		l.awaitChange()
		return 0, false
	}
	if l.readErr != nil {
		return 0, false
	}
	in := l.incoming
	l.incoming = arrival{}
	if !in.fromSlab && unsafe.SliceData(in.memory) == unsafe.SliceData(buf) && len(in.memory) <= len(buf) {
		return len(in.memory), true
	}
	l.piece, l.at, l.fromSlab = in.memory, 0, in.fromSlab
	return l.copyOut(buf), true
}

func (l *Link) incomingEnded() bool {
	in := &l.incoming
	if in.ended {
		return true
	}
	var err error
	if in.ended, err = l.worker.ended(in.request); err != nil && l.readErr == nil {
		l.readErr = fmt.Errorf("receive from rank %d: %w", l.rank, err)
	}
	return in.ended
}

func (l *Link) copyOut(buf []byte) int {
	n := copy(buf, l.piece[l.at:])
	if l.at += n; l.at == len(l.piece) {
		if l.fromSlab {
			l.worker.slab.put(l.piece)
		}
		l.piece = nil
	}
	return n
}

// receiveNext begins to receive the next message that has bytes, into buf if that is possible, and reports whether there is one.
func (l *Link) receiveNext(buf []byte) bool {
	for l.arrived.len() > 0 && l.readErr == nil {
		m := l.arrived.first()
		switch {
		case m.length == 0:
			l.arrived.pop()
			l.receive(m, nil, 0)
			if r := l.incoming.request; r != 0 {
				l.worker.do(l.worker.lib.fn.requestFree, r) // the request ends by itself
			}
			l.incoming = arrival{}
			continue
		case m.length > maxMessage:
			l.readErr = fmt.Errorf("rank %d sent a message of %d bytes: no rank of this version sends more than %d",
				l.rank, m.length, maxMessage)
			return false
		}
		if m.length <= uint64(len(buf)) {
			if r := l.registered(buf[:m.length], directMin); r != nil {
				l.arrived.pop()
				l.receive(m, buf[:m.length], r.registered)
				return l.readErr == nil
			}
		}
		w := l.worker
		piece, err := w.slab.piece(int(m.length), w.growSlab)
		if piece == nil {
			l.readErr = err
			return false
		}
		l.arrived.pop()
		l.receive(m, piece[:m.length], w.slab.find(piece[:m.length]).registered)
		l.incoming.fromSlab = true
		return l.readErr == nil
	}
	return false
}

// receive begins to receive a message.
func (l *Link) receive(m message, b []byte, registered uintptr) {
	w := l.worker
	p := &w.blocks.request
	*p = requestParams{}
	if registered != 0 {
		p.fields, p.memory = requestMemory, registered
	}
	request, ended := started(w.do(w.lib.fn.receive, w.worker, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)),
		m.handle, clib.Address(p)))
	if ended != statusOK {
		l.readErr = w.lib.error(fmt.Sprintf("receive from rank %d", l.rank), ended)
	}
	l.incoming = arrival{active: ended == statusOK, request: request, memory: b}
}

// PeerGone records that the other rank has closed its connections, or has ended. Once everything that it has sent is read, Read
// returns io.EOF.
func (l *Link) PeerGone() {
	l.worker.mu.Lock()
	defer l.worker.mu.Unlock()
	l.gone = true
	l.notify()
}
