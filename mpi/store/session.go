package store

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

// session serves one client that has proved that it knows the secret.
//
// Requests are answered in the order in which they come, except those that have to wait for a key: each of these has its own goroutine.
type session struct {
	store  *memory
	conn   net.Conn
	ctx    context.Context // ends with the session
	cancel context.CancelFunc

	writing sync.Mutex // guards w
	w       *bufio.Writer

	mu           sync.Mutex
	waiting      map[uint64]context.CancelFunc // by request id
	waitingBytes int                           // bytes in those requests
	waiters      sync.WaitGroup
}

func newSession(ctx context.Context, store *memory, conn net.Conn) *session {
	s := &session{store: store, conn: conn, w: bufio.NewWriterSize(conn, 16<<10), waiting: make(map[uint64]context.CancelFunc)}
	s.ctx, s.cancel = context.WithCancel(ctx)
	return s
}

// serve answers requests until the connection ends, and closes it. The error is nil if the client closed it between two requests.
func (s *session) serve() error {
	stop := context.AfterFunc(s.ctx, func() { s.conn.Close() }) // interrupts reads and writes
	defer s.waiters.Wait()
	defer s.conn.Close()
	defer stop()
	defer s.cancel()

	r := bufio.NewReaderSize(s.conn, 16<<10)
	var buf []byte
	for {
		frame, err := readFrame(r, buf)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		req, err := parseRequest(frame)
		if err != nil {
			return err
		}
		if err := s.handle(&req); err != nil {
			return err
		}
		if cap(frame) <= keptFrame {
			buf = frame
		}
	}
}

// handle answers a request, or makes it wait. An error ends the session.
func (s *session) handle(req *request) error {
	ctx := context.Background() // requests that have come are carried out even if the session ends
	switch req.op {
	case opSet:
		return s.answer(req.id, nil, s.store.Set(ctx, req.key, req.value))
	case opAdd:
		sum, err := s.store.Add(ctx, req.key, req.delta)
		return s.answer(req.id, numberResult(sum), err)
	case opCompareSet:
		value, err := s.store.compareSet(req.key, req.expected, req.value, anyLength)
		return s.answer(req.id, optionalResult(value), err)
	case opDelete:
		was, err := s.store.Delete(ctx, req.key)
		return s.answer(req.id, boolResult(was), err)
	case opGet:
		value, err := s.store.peek(req.key)
		if value != nil || err != nil {
			return s.answer(req.id, value, err)
		}
		key := req.key
		return s.wait(req, func(ctx context.Context) ([]byte, error) { return s.store.get(ctx, key) })
	case opWait:
		present, err := s.store.present(req.keys, s.store.has)
		if present || err != nil {
			return s.answer(req.id, nil, err)
		}
		keys := req.keys
		return s.wait(req, func(ctx context.Context) ([]byte, error) { return nil, s.store.Wait(ctx, keys...) })
	case opAppend:
		return s.answer(req.id, nil, s.store.Append(ctx, req.key, req.value))
	case opCheck:
		present, err := s.store.present(req.keys, s.store.has)
		return s.answer(req.id, boolResult(present), err)
	case opNumKeys:
		n, err := s.store.NumKeys(ctx, req.key)
		return s.answer(req.id, numberResult(int64(n)), err)
	case opList:
		keys, err := s.store.List(ctx, req.key)
		return s.answer(req.id, listResult(keys), err)
	case opMultiGet:
		values, all, err := s.store.peekAll(req.keys)
		if all || err != nil {
			return s.answer(req.id, listResult(values), err)
		}
		keys := req.keys
		return s.wait(req, func(ctx context.Context) ([]byte, error) {
			values, err := s.store.multiGet(ctx, keys)
			return listResult(values), err
		})
	case opMultiSet:
		return s.answer(req.id, nil, s.store.MultiSet(ctx, req.items...))
	case opCancel:
		s.cancelWait(req.id)
	}
	return nil
}

// wait answers a request when until returns. until returns at the latest when the client cancels the request.
func (s *session) wait(req *request, until func(context.Context) ([]byte, error)) error {
	id, size := req.id, req.size()
	ctx, err := s.startWaiting(id, size)
	if errors.Is(err, ErrBusy) {
		return s.answer(id, nil, err)
	}
	if err != nil {
		return err
	}
	s.waiters.Go(func() {
		value, err := until(ctx)
		s.endWaiting(id, size)
		if s.ctx.Err() != nil { // the session has ended, so err is not an answer
			return
		}
		if s.answer(id, value, err) != nil {
			s.cancel()
		}
	})
	return nil
}

func (s *session) startWaiting(id uint64, size int) (context.Context, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.waiting[id]; ok {
		return nil, fmt.Errorf("%w: request %d is pending already", errMalformed, id)
	}
	if len(s.waiting) >= MaxWaiting || s.waitingBytes+size > MaxWaitingBytes {
		return nil, fmt.Errorf("%w: %d, with %d bytes", ErrBusy, len(s.waiting), s.waitingBytes)
	}
	ctx, cancel := context.WithCancel(s.ctx)
	s.waiting[id], s.waitingBytes = cancel, s.waitingBytes+size
	return ctx, nil
}

// cancelWait ends the wait of a request. If the wait has ended already, the answer is on its way.
func (s *session) cancelWait(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cancel, ok := s.waiting[id]; ok {
		cancel()
	}
}

func (s *session) endWaiting(id uint64, size int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting[id]()
	delete(s.waiting, id)
	s.waitingBytes -= size
}

// answer sends a result or, if err is not nil, the error.
func (s *session) answer(id uint64, res result, err error) error {
	r := reply{id, replyDone, res}
	if err != nil {
		r = errorReply(id, err)
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	if err := r.writeTo(s.w); err != nil {
		return err
	}
	return s.w.Flush()
}
