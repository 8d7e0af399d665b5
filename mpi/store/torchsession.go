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
	store *memory
	conn  net.Conn
	in    torchReader
	out   *bufio.Writer
	wait  *torchWaiting // nil: none
}

// torchWaiting is a torchWait query under way. Until it has ended, out is its own.
type torchWaiting struct {
	cancel context.CancelFunc
	done   chan struct{}
	err    error // set before done is closed
}

// serve answers queries until the connection or ctx ends, and closes the connection. The error is nil where the
// client closed it between two queries.
func (s *torchSession) serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(ctx, func() { s.conn.Close() })
	defer s.conn.Close()
	defer stop()
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
		present, err := s.store.present(q.keys)
		if err == nil && !present {
			s.beginWait(ctx, q)
			return nil
		}
	}
	defer s.in.allowance.give(q.size)
	reply, err := s.reply(q)
	if err != nil || len(reply) == 0 {
		return err
	}
	// A value that was replaced meanwhile is kept in memory by those who are slow to take it.
	size := 0
	for _, part := range reply {
		size += len(part)
	}
	if !s.in.allowance.take(size) {
		return fmt.Errorf("%w: PyTorch's clients have asked for more than %d bytes that they have not taken", ErrBusy, s.in.allowance.most)
	}
	defer s.in.allowance.give(size)
	if err := s.conn.SetWriteDeadline(time.Now().Add(torchQueryTime)); err != nil {
		return err
	}
	for _, part := range reply {
		s.out.Write(part) // bufio keeps the first error for Flush
	}
	return s.out.Flush()
}

// reply returns the parts of the reply. They are not copied from the store.
func (s *torchSession) reply(q *torchQuery) ([][]byte, error) {
	switch q.op {
	case torchSet:
		return nil, s.store.set(q.key, q.value)
	case torchAppend:
		return nil, s.store.extend(q.key, q.value)
	case torchMultiSet:
		return nil, s.store.multiSet(q.items)
	case torchCompareSet:
		value, err := s.store.compareSet(q.key, q.expected, q.value)
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
		sum, err := s.store.add(q.key, q.delta)
		return torchNumber(sum), err
	case torchDelete:
		was, err := s.store.remove(q.key)
		return torchNumber(int64(boolResult(was)[0])), err
	case torchNumKeys:
		n, err := s.store.count(s.in.prefix)
		return torchNumber(int64(n)), err
	case torchCheck:
		present, err := s.store.present(q.keys)
		return [][]byte{boolResult(!present)}, err
	case torchWait: // all are there
		return [][]byte{{torchStopWaiting}}, nil
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

// beginWait has a query wait on a goroutine of its own, until it is done or endWait.
func (s *torchSession) beginWait(ctx context.Context, q *torchQuery) {
	ctx, cancel := context.WithCancel(ctx)
	w := &torchWaiting{cancel: cancel, done: make(chan struct{})}
	s.wait = w
	go func() {
		defer close(w.done)
		defer s.in.allowance.give(q.size)
		var cancelled *WaitError
		err := s.store.Wait(ctx, q.keys...)
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
	return w.err
}
