package store

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"
)

// torchSession serves one connection of a PyTorch client: one query at a time, in their order. A client that sends another query
// while it waits has given up waiting. The reply to the wait, which it does not expect any more, is then not sent: the client would
// take it for the beginning of the next reply (as it does with PyTorch 1.13's own server).
type torchSession struct {
	store    *memory
	conn     net.Conn
	in       torchReader
	out      *bufio.Writer
	replies  *budget
	wait     *torchWaiting // nil: none
	wokenFor *string       // the queue for which its last wait was woken, if it has sent no query since; nil: none
}

// torchWaiting is a pending torchWait query. Until it has ended, only it may use out.
type torchWaiting struct {
	cancel   context.CancelFunc
	done     chan struct{}
	wokenFor *string // this and err are set before done is closed
	err      error
}

// serve answers queries until the connection or ctx ends, and closes the connection. The error is nil if the client closed it
// between two queries.
func (s *torchSession) serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(ctx, func() { s.conn.Close() })
	defer s.conn.Close()
	defer stop()
	defer s.passWakeup()
	defer s.endWait()
	defer cancel()
	for {
		// Between two queries, a client may be silent for any time: torch1's second connections always are.
		if err := s.conn.SetReadDeadline(time.Time{}); err != nil {
			return s.ended(err)
		}
		if _, err := s.in.r.Peek(1); err != nil {
			return s.ended(err)
		}
		if err := s.conn.SetReadDeadline(time.Now().Add(torchQueryTime)); err != nil {
			return s.ended(err)
		}
		q, err := s.in.next()
		if err != nil {
			return s.ended(err)
		}
		if err := s.endWait(); err != nil {
			s.in.allowance.give(q.size)
			return err
		}
		if q.op == torchQueuePop && s.wokenFor != nil && *s.wokenFor == q.key {
			s.wokenFor = nil
		}
		s.passWakeup()
		if err := s.answer(ctx, &q); err != nil {
			return err
		}
	}
}

// ended returns the error of a session in which no query came.
func (s *torchSession) ended(err error) error {
	if werr := s.endWait(); werr != nil {
		return werr
	}
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, syscall.ECONNRESET) {
		return nil // the client ended, or was killed
	}
	return err
}

// answer carries out a query, and gives back its size.
func (s *torchSession) answer(ctx context.Context, q *torchQuery) error {
	if q.op == torchWait {
		present, err := s.store.present(q.keys, s.store.hasOrQueues)
		if err == nil && !present {
			s.beginWait(ctx, q)
			return nil
		}
	}
	defer s.in.allowance.give(q.size)
	reply, size, err := s.replyWithinBudget(ctx, q)
	defer s.replies.give(size)
	if err != nil || len(reply) == 0 {
		return err
	}
	if err := s.conn.SetWriteDeadline(time.Now().Add(torchQueryTime)); err != nil {
		return err
	}
	for _, part := range reply {
		s.out.Write(part) // bufio keeps the first error for Flush
	}
	return s.out.Flush()
}

// beginWait makes a query wait on its own goroutine, until its keys exist or endWait is called.
func (s *torchSession) beginWait(ctx context.Context, q *torchQuery) {
	ctx, cancel := context.WithCancel(ctx)
	w := &torchWaiting{cancel: cancel, done: make(chan struct{})}
	s.wait = w
	go func() {
		defer close(w.done)
		defer s.in.allowance.give(q.size)
		var cancelled *WaitError
		wokenFor, err := s.store.waitOrPop(ctx, q.keys)
		w.wokenFor = wokenFor
		switch {
		case err == nil:
			s.conn.SetWriteDeadline(time.Now().Add(torchQueryTime)) // if it fails, the write fails, too
			s.out.WriteByte(torchStopWaiting)
			err = s.out.Flush()
		case errors.As(err, &cancelled):
			return
		}
		if w.err = err; err != nil {
			s.conn.Close() // wakes serve
		}
	}()
}

// endWait ends the wait, if there is one, and returns its error.
func (s *torchSession) endWait() error {
	w := s.wait
	if w == nil {
		return nil
	}
	s.wait = nil
	w.cancel()
	<-w.done
	s.wokenFor = w.wokenFor
	return w.err
}

// passWakeup wakes another client for the value that this one was woken for but has not popped.
func (s *torchSession) passWakeup() {
	if s.wokenFor != nil {
		s.store.wakeNextPopper(*s.wokenFor)
		s.wokenFor = nil
	}
}

// smallReply is the cost, in bytes, up to which a reply does not wait for room.
const smallReply = 4 << 10

// replyWithinBudget is reply once there is room for it. The caller must give size bytes back. The parts are the store's own, not
// copies: their cost is values that are replaced in the store while a client is slow to receive them. A reply that waits for room
// has no parts yet.
func (s *torchSession) replyWithinBudget(ctx context.Context, q *torchQuery) (parts [][]byte, size int, err error) {
	most := MaxValue + 4*fieldCost
	switch q.op {
	case torchMultiGet:
		most = MaxTogether + 3*fieldCost*len(q.keys)
		fallthrough
	case torchGet:
		// When there is room, the store is asked again.
		if parts, err := s.reply(q, anyLength); err != nil || costOf(parts) <= smallReply {
			return parts, 0, err
		}
	case torchCompareSet, torchQueuePop: // cannot be done twice
		if parts, err := s.reply(q, smallReply); !errors.Is(err, errTooLong) {
			return parts, 0, err
		}
	default:
		parts, err = s.reply(q, anyLength)
		return parts, 0, err
	}
	if err := s.replies.take(ctx, most); err != nil {
		return nil, 0, err
	}
	parts, err = s.reply(q, anyLength)
	size = costOf(parts)
	s.replies.give(most - size)
	return parts, size, err
}

func costOf(parts [][]byte) int {
	size := 0
	for _, part := range parts {
		size += fieldCost + len(part)
	}
	return size
}

// reply carries out a query and returns the parts of the reply, which are not copied from the store. If the query would change the
// store, and its reply would have a value of more than longest bytes, it is not carried out: the error is errTooLong.
func (s *torchSession) reply(q *torchQuery, longest int) ([][]byte, error) {
	ctx := context.Background() // queries that have come are carried out even if the session ends
	switch q.op {
	case torchSet:
		return nil, s.store.Set(ctx, q.key, q.value)
	case torchAppend:
		return nil, s.store.Append(ctx, q.key, q.value)
	case torchMultiSet:
		return nil, s.store.MultiSet(ctx, q.items...)
	case torchCompareSet:
		value, err := s.store.compareSet(q.key, q.expected, q.value, longest)
		if value == nil {
			value = q.expected // PyTorch's reply if there is no value
		}
		return torchValues(value), err
	case torchGet:
		value, err := s.store.peek(q.key)
		if value == nil && err == nil && s.in.form == torch1 {
			err = fmt.Errorf("get %s: it is absent, and PyTorch 1.13's protocol has no reply for that", quote(q.key))
		}
		return torchValues(value), err
	case torchMultiGet:
		values, _, err := s.store.peekAll(q.keys)
		return torchValues(values...), err
	case torchAdd:
		sum, err := s.store.Add(ctx, q.key, q.delta)
		return torchNumber(sum), err
	case torchDelete:
		was, err := s.store.Delete(ctx, q.key)
		return torchNumber(int64(boolResult(was)[0])), err
	case torchNumKeys:
		n, err := s.store.NumKeys(ctx, s.in.prefix)
		return torchNumber(int64(n)), err
	case torchCheck:
		present, err := s.store.present(q.keys, s.store.hasOrQueues)
		return [][]byte{boolResult(!present)}, err
	case torchWait: // all keys exist
		return [][]byte{{torchStopWaiting}}, nil
	case torchQueuePush:
		return nil, s.store.push(q.key, q.value)
	case torchQueuePop:
		n, value, err := s.store.pop(q.key, longest)
		if n == 0 {
			return torchNumber(0), err
		}
		return append(torchNumber(int64(n)), torchValues(value)...), err
	case torchQueueLen:
		n, err := s.store.queueLen(q.key)
		return torchNumber(int64(n)), err
	case torchCancelWait:
		return [][]byte{{torchWaitCancelled}}, nil
	case torchPing:
		return [][]byte{binary.LittleEndian.AppendUint32(nil, q.nonce)}, nil
	}
	return nil, fmt.Errorf("%w: query %d", errMalformed, q.op)
}

// The replies to torchWait and torchCancelWait.
const (
	torchStopWaiting   = 0
	torchWaitCancelled = 1
)

func torchNumber(n int64) [][]byte {
	return [][]byte{binary.LittleEndian.AppendUint64(nil, uint64(n))}
}

// torchValues returns values, each preceded by its length. nil counts as an empty value.
func torchValues(values ...[]byte) [][]byte {
	parts := make([][]byte, 0, 2*len(values))
	for _, value := range values {
		parts = append(parts, binary.LittleEndian.AppendUint64(nil, uint64(len(value))), value)
	}
	return parts
}
