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

// torchSession serves one connection of a PyTorch client: one query at a time, in their order. A client that sends
// another one while it waits has given up waiting: the byte that it no longer expects is not sent, or it would take
// it for the beginning of the next reply (as it does with PyTorch 1.13's own server).
type torchSession struct {
	store    *memory
	conn     net.Conn
	in       torchReader
	out      *bufio.Writer
	replies  *budget
	wait     *torchWaiting // nil: none
	wokenFor *string       // the queue for which a wait woke it, of which nothing else has come since; nil: none
}

// torchWaiting is a torchWait query under way. Until it has ended, out is its own.
type torchWaiting struct {
	cancel   context.CancelFunc
	done     chan struct{}
	wokenFor *string // this and err are set before done is closed
	err      error
}

// serve answers queries until the connection or ctx ends, and closes the connection. The error is nil where the
// client closed it between two queries.
func (s *torchSession) serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(ctx, func() { s.conn.Close() })
	defer s.conn.Close()
	defer stop()
	defer s.passWakeup()
	defer s.endWait()
	defer cancel()
	for {
		// Between two queries it may be silent for as long as it likes: that is all that torch1's second connections do.
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

// ended tells why no query came.
func (s *torchSession) ended(err error) error {
	if werr := s.endWait(); werr != nil {
		return werr
	}
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, syscall.ECONNRESET) {
		return nil // it ended, or was killed
	}
	return err
}

// answer does what a query asks for, and gives back its size.
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

// beginWait has a query wait on a goroutine of its own, until it is done or endWait.
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
			s.conn.SetWriteDeadline(time.Now().Add(torchQueryTime)) // where it fails, so does the write
			s.out.WriteByte(torchStopWaiting)
			err = s.out.Flush()
		case errors.As(err, &cancelled):
			return
		}
		if w.err = err; err != nil {
			s.conn.Close() // which wakes serve
		}
	}()
}

// endWait ends the wait, if there is one, and tells what went wrong with it.
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

// passWakeup has another client pop what this one was woken for and has not popped.
func (s *torchSession) passWakeup() {
	if s.wokenFor != nil {
		s.store.wakeNextPopper(*s.wokenFor)
		s.wokenFor = nil
	}
}

// smallReply is what a reply may cost, in bytes, without waiting for its turn.
const smallReply = 4 << 10

// replyWithinBudget is reply when there is room for it, of which size bytes are then the caller's to give back. The parts are
// the store's own, not copies: what they cost is the values that are replaced while a client is slow to take
// them. A reply that waits for its turn has none yet.
func (s *torchSession) replyWithinBudget(ctx context.Context, q *torchQuery) (parts [][]byte, size int, err error) {
	most := MaxValue + 4*fieldCost
	switch q.op {
	case torchMultiGet:
		most = MaxTogether + 3*fieldCost*len(q.keys)
		fallthrough
	case torchGet:
		// When its turn has come, it asks again.
		if parts, err := s.reply(q, anyLength); err != nil || costOf(parts) <= smallReply {
			return parts, 0, err
		}
	case torchCompareSet, torchQueuePop: // cannot be asked twice
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

// reply returns the parts of the reply. They are not copied from the store. What changes the store and would have a value of more than
// longest bytes for its reply is not done: the error is errTooLong.
func (s *torchSession) reply(q *torchQuery, longest int) ([][]byte, error) {
	ctx := context.Background() // what has come is done, though the session may end
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
			value = q.expected // so PyTorch says that there is none
		}
		return torchValues(value), err
	case torchGet:
		value, err := s.store.peek(q.key)
		if value == nil && err == nil && s.in.form == torch1 {
			err = fmt.Errorf("get %s: it is absent, and PyTorch 1.13's wire has no reply for that", quote(q.key))
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
	case torchWait: // all are there
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

// torchValues are values with their lengths; nil is an empty one.
func torchValues(values ...[]byte) [][]byte {
	parts := make([][]byte, 0, 2*len(values))
	for _, value := range values {
		parts = append(parts, binary.LittleEndian.AppendUint64(nil, uint64(len(value))), value)
	}
	return parts
}
