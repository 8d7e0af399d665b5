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

// A message's tag says which rank sent it, and how many bytes that one has read of this link, modulo 2^44.
const (
	rankBits     = 20
	rankShift    = 44
	positionMask = 1<<rankShift - 1
)

const (
	window     = 1 << 20   // bytes that the other rank may have and not have read: UCX may keep them for it
	maxCopy    = 32 << 10  // bytes of a message that is copied
	directMin  = 64 << 10  // bytes from which on a message leaves from registered memory where they lie, and arrives there
	maxMessage = 256 << 10 // bytes
	inFlight   = 4         // messages that leave from the caller's memory at a time
)

// Link is a stream of bytes to another rank, and one back: a transport.Link.
type Link struct {
	worker    *Worker
	rank      int
	address   []byte  // of the other rank's worker, on the heap
	endpoint  uintptr // ucp_ep_h; 0 before the first message
	tag       uint64  // of this rank
	isNews    bool    // it is among worker.news
	isWaiting bool    // it is among worker.waiting
	isPartial bool    // the last Write did not take all, or has not sent all
	gone      bool    // the other rank is gone: what has come can be read
	failed    error   // UCX has given up the connection: what has come can be read
	sendErr   error   // nothing more can be sent
	readErr   error   // nothing more can be received

	// to the other rank
	sent, acknowledged uint64      // bytes
	copies             queue[sent] // pieces of the slab, in order
	direct             queue[sent] // parts of the caller's memory, in order
	taken              int         // bytes that count as written, and that Write has not told of

	// from the other rank
	arrived        queue[message] // that have not been received, in order
	incoming       arrival
	piece          []byte // received, and not read from at on
	at             int
	fromSlab       bool   // piece goes back to the slab
	read, reported uint64 // bytes: that the caller has; that the other rank knows of
}

// sent is a message that UCX is still sending.
type sent struct {
	request uintptr
	memory  []byte
}

// Write takes what it can. What lies in memory of Alloc, and is long, counts as taken when it has been sent: until then it is not to be
// changed, and the caller comes again with it.
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
	for _, d := range l.direct.all() { // these are on their way already
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

// advance leaves out the first n bytes of two slices that follow each other.
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

// post sends one message of what is left, and returns its length. Bytes count as taken in their order: behind parts of the caller's memory,
// nothing is copied until these have been sent; 0 is returned.
func (l *Link) post(head, body []byte) (n int, isCopy bool, err error) {
	w := l.worker
	if len(head) == 0 {
		head, body = body, nil
	}
	least := directMin
	if l.direct.len() > 0 {
		least = 1 // what is behind such a part does not wait for it to be sent
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

// registered is the region of b, if b is at least that long and has one.
func (l *Link) registered(b []byte, least int) *region {
	if len(b) < least {
		return nil
	}
	return l.worker.slab.find(b[:min(len(b), maxMessage)])
}

// connect makes the endpoint, which begins to connect. UCX has an endpoint of its own for a rank that only receives.
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

// endpointFailed is the error handler of endpoints (ucp_err_handler_cb_t): UCX calls it while it is let work, and so with mu held. Of short
// messages, which have been sent as soon as they are posted, nothing else tells that they will not arrive.
func endpointFailed(link, _, s uintptr) uintptr {
	l := *(**Link)(unsafe.Pointer(&link)) // the argument of connect
	l.failed = l.worker.lib.error(fmt.Sprintf("the connection to rank %d by UCX", l.rank), ucsStatus(s))
	if l.sendErr == nil {
		l.sendErr = l.failed
	}
	l.notify()
	return 0
}

// send posts a message. The request is 0 where it has been sent.
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

// finish takes back what has been sent.
func (l *Link) finish() {
	for l.copies.len() > 0 && l.isSent(l.copies.first().request) {
		l.worker.slab.put(l.copies.pop().memory)
	}
	for l.direct.len() > 0 && l.isSent(l.direct.first().request) {
		l.taken += len(l.direct.pop().memory)
	}
}

// isSent reports whether a message has left. One that has failed ends the sending.
func (l *Link) isSent(request uintptr) bool {
	done, err := l.worker.ended(request)
	if err != nil && l.sendErr == nil {
		l.sendErr = fmt.Errorf("send to rank %d: %w", l.rank, err)
	}
	return done
}

// ended reports whether a request has ended, and how, and frees it then.
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

// acknowledge notes how far the other rank has read.
func (l *Link) acknowledge(position uint64) {
	if more := (position - l.acknowledged) & positionMask; more <= l.sent-l.acknowledged {
		l.acknowledged += more
	}
}

// Try sends a message without bytes, and returns when the other rank's side has it: the way there works, and is set up. Other ranks' tries
// that this one is to answer go on meanwhile.
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
