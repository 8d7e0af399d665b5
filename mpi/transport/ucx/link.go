package ucx

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"
	"unsafe"

	"ddpbatch/internal/clib"
)

// A message's tag consists of the sender's rank, and how many bytes it has read of this link, modulo 2^44.
const (
	rankBits     = 20
	rankShift    = 44
	positionMask = 1<<rankShift - 1
)

const (
	window     = 1 << 20   // bytes that may be sent and not yet read: UCX may have to keep them for the other rank
	maxCopy    = 32 << 10  // bytes of a message that is copied
	directMin  = 64 << 10  // bytes from which on a message is sent from and received into registered memory in place
	maxMessage = 256 << 10 // bytes
	inFlight   = 4         // messages that are sent from the caller's memory at a time
)

// Link is a stream of bytes to another rank, and one back: a transport.Link.
type Link struct {
	worker    *Worker
	rank      int
	address   []byte  // of the other rank's worker, on the heap
	endpoint  uintptr // ucp_ep_h; 0 before the first message
	tag       uint64  // this rank's part of the tags
	isNews    bool    // the link is in worker.news
	isWaiting bool    // the link is in worker.waiting
	isPartial bool    // the last Write has not taken, or not sent, everything
	gone      bool    // the other rank is gone; what has come can still be read
	failed    error   // UCX has given up the connection; what has come can still be read
	sendErr   error   // nothing more can be sent
	readErr   error   // nothing more can be received

	// to the other rank
	sent, acknowledged uint64      // bytes
	copies             queue[sent] // pieces of the slab, in order
	direct             queue[sent] // parts of the caller's memory, in order
	taken              int         // bytes that count as written, but that Write has not returned yet

	// from the other rank
	arrived        queue[message] // not received yet, in order
	incoming       arrival
	piece          []byte // received; not read yet from at on
	at             int
	fromSlab       bool   // piece belongs to the slab
	read, reported uint64 // bytes that the caller has read; bytes of these that were reported to the other rank
}

// sent is a message that UCX is still sending.
type sent struct {
	request uintptr
	memory  []byte
}

// Write takes as many bytes as it can. Long parts in memory of Alloc count as taken when they have been sent: until then, the
// caller must not change them, and must call Write with them again.
func (l *Link) Write(head, body []byte) (int, error) {
	w := l.worker
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.worker == 0 {
		return 0, errClosed
	}
	l.finish()
	if l.gone {
		return 0, errGone
	}
	if l.sendErr != nil {
		return 0, l.sendErr
	}
	head, body = advance(head, body, l.taken)
	for _, d := range l.direct.all() { // these are being sent already
		head, body = advance(head, body, len(d.memory))
	}
	for polled := false; len(head)+len(body) > 0; {
		if !l.hasRoom() {
			if polled {
				break
			}
			w.poll()
			polled = true
			continue
		}
		n, isCopy, err := l.post(head, body)
		if err != nil {
			return 0, err
		}
		if n == 0 {
			break
		}
		if isCopy {
			l.taken += n
		}
		head, body = advance(head, body, n)
	}
	if l.isPartial = len(head)+len(body)+l.direct.len() > 0; l.isPartial {
		l.awaitChange()
	}
	taken := l.taken
	l.taken = 0
	return taken, nil
}

var errGone = errors.New("the other rank has ended")

// advance skips the first n bytes of two consecutive slices.
func advance(head, body []byte, n int) (_, _ []byte) {
	if n <= len(head) {
		return head[n:], body
	}
	return nil, body[min(n-len(head), len(body)):]
}

// hasRoom reports whether another message may be sent.
func (l *Link) hasRoom() bool {
	l.finish()
	return l.sent-l.acknowledged < window && l.direct.len() < inFlight
}

// post sends one message with the beginning of head and body, and returns its length. Bytes count as taken in order. So while parts
// of the caller's memory are being sent, nothing behind them is copied, and post returns 0.
func (l *Link) post(head, body []byte) (n int, isCopy bool, err error) {
	w := l.worker
	if len(head) == 0 {
		head, body = body, nil
	}
	least := directMin
	if l.direct.len() > 0 {
		least = 1 // short registered bytes behind such a part need not wait for it
	}
	if r := l.registered(head, least); r != nil {
		part := head[:min(len(head), maxMessage)]
		request, err := l.send(part, r.registered)
		if err != nil {
			return 0, false, err
		}
		l.direct.push(sent{request, part})
		return len(part), false, nil
	}
	if l.direct.len() > 0 {
		return 0, true, nil
	}
	n = len(head)
	if l.registered(body, directMin) == nil {
		n += len(body)
	}
	n = min(n, maxCopy)
	piece, err := w.slab.piece(n, w.growSlab)
	if piece == nil {
		l.sendErr = err
		return 0, true, err
	}
	piece = append(piece, head[:min(n, len(head))]...)
	piece = append(piece, body[:n-len(piece)]...)
	request, err := l.send(piece, w.slab.find(piece).registered)
	if request == 0 {
		w.slab.put(piece)
	} else {
		l.copies.push(sent{request, piece})
	}
	return n, true, err
}

// registered returns the region of b, or nil if b is shorter than least or not in registered memory.
func (l *Link) registered(b []byte, least int) *region {
	if len(b) < least {
		return nil
	}
	return l.worker.slab.find(b[:min(len(b), maxMessage)])
}

// connect makes the endpoint, which begins to connect. For a rank that only receives, UCX has its own endpoint.
func (l *Link) connect() error {
	w := l.worker
	p := clib.New[endpointParams]()
	*p = endpointParams{
		fields: endpointAddress | endpointErrorMode | endpointOnError, address: clib.Address(&l.address[0]), errorMode: errorsOfPeers,
		errorCallback: w.lib.failed, errorArgument: uint64(clib.Address(l)),
	}
	s := ucsStatus(w.do(w.lib.fn.endpointCreate, w.worker, clib.Address(p), clib.Address(&w.blocks.out[0])))
	runtime.KeepAlive(p)
	if s != statusOK {
		l.sendErr = w.lib.error(fmt.Sprintf("connect to rank %d by UCX", l.rank), s)
		return l.sendErr
	}
	l.endpoint = w.blocks.out[0]
	return nil
}

// endpointFailed is the error handler of endpoints (ucp_err_handler_cb_t). UCX calls it while it makes progress, and so with mu
// held. It is the only sign that short messages, which count as sent as soon as they are posted, will not arrive.
func endpointFailed(link, _, s uintptr) uintptr {
	l := *(**Link)(unsafe.Pointer(&link)) // errorArgument in connect
	l.failed = l.worker.lib.error(fmt.Sprintf("the connection to rank %d by UCX", l.rank), ucsStatus(s))
	if l.sendErr == nil {
		l.sendErr = l.failed
	}
	l.notify()
	return 0
}

// send posts a message. The request is 0 if the message has been sent.
func (l *Link) send(b []byte, registered uintptr) (request uintptr, err error) {
	if l.endpoint == 0 {
		if err := l.connect(); err != nil {
			return 0, err
		}
	}
	w := l.worker
	p := &w.blocks.request
	*p = requestParams{}
	if registered != 0 {
		p.fields, p.memory = requestMemory, registered
	}
	tag := l.tag | l.read&positionMask
	request, ended := started(w.do(w.lib.fn.send, l.endpoint, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)),
		uintptr(tag), clib.Address(p)))
	if ended != statusOK {
		l.sendErr = w.lib.error(fmt.Sprintf("send to rank %d", l.rank), ended)
		return 0, l.sendErr
	}
	l.reported = l.read
	l.sent += uint64(len(b))
	return request, nil
}

// finish releases messages that have been sent.
func (l *Link) finish() {
	for l.copies.len() > 0 && l.isSent(l.copies.first().request) {
		l.worker.slab.put(l.copies.pop().memory)
	}
	for l.direct.len() > 0 && l.isSent(l.direct.first().request) {
		l.taken += len(l.direct.pop().memory)
	}
}

// isSent reports whether a message has been sent. An error sets sendErr.
func (l *Link) isSent(request uintptr) bool {
	done, err := l.worker.ended(request)
	if err != nil && l.sendErr == nil {
		l.sendErr = fmt.Errorf("send to rank %d: %w", l.rank, err)
	}
	return done
}

// ended reports whether a request has ended, and its error. It frees a request that has ended.
func (w *Worker) ended(request uintptr) (bool, error) {
	if request == 0 {
		return true, nil
	}
	s := ucsStatus(w.do(w.lib.fn.checkStatus, request))
	if s == statusInProgress {
		return false, nil
	}
	w.do(w.lib.fn.requestFree, request)
	return true, w.lib.error("UCX", s)
}

// acknowledge records how far the other rank has read.
func (l *Link) acknowledge(position uint64) {
	if more := (position - l.acknowledged) & positionMask; more <= l.sent-l.acknowledged {
		l.acknowledged += more
	}
}

// Try sends a message without bytes, and returns when it has arrived at the other rank: the way there works and is set up.
// Meanwhile other ranks' tries that need this rank make progress.
func (l *Link) Try(ctx context.Context) error {
	request, err := l.beginTry()
	for err == nil && request != 0 {
		select {
		case <-ctx.Done():
			return fmt.Errorf("reach rank %d by UCX (its UCX_* variables choose how): %w", l.rank, context.Cause(ctx))
		case <-time.After(pace):
			l.worker.mu.Lock()
			l.worker.progress()
			if done, tryErr := l.worker.ended(request); done {
				request, err = 0, tryErr
			}
			l.worker.mu.Unlock()
		}
	}
	return err
}

func (l *Link) beginTry() (request uintptr, err error) {
	w := l.worker
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := l.report(); err != nil {
		return 0, err
	}
	w.blocks.request = requestParams{}
	request, ended := started(w.do(w.lib.fn.endpointFlush, l.endpoint, clib.Address(&w.blocks.request)))
	return request, w.lib.error(fmt.Sprintf("reach rank %d by UCX", l.rank), ended)
}
