package store

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"time"
)

// torchSession serves one connection of a PyTorch client: one query at a time, in their order. A client that sends
// another one while it waits has given up waiting: the byte that it no longer expects is not sent, or it would take
// it for the beginning of the next reply (as it does with PyTorch 1.13's own server).
type torchSession struct {
	store   *memory
	conn    net.Conn
	in      torchReader
	out     *bufio.Writer
	replies *replyLine
	wait    *torchWaiting // nil: none
	turn    *string       // the queue for which a wait woke it, of which nothing else has come since; nil: none
}

// torchWaiting is a torchWait query under way. Until it has ended, out is its own.
type torchWaiting struct {
	cancel context.CancelFunc
	done   chan struct{}
	turn   *string // this and err are set before done is closed
	err    error
}

// serve answers queries until the connection or ctx ends, and closes the connection. The error is nil where the
// client closed it between two queries.
func (s *torchSession) serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(ctx, func() { s.conn.Close() })
	defer s.conn.Close()
	defer stop()
	defer s.passTurn()
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
		if q.op == torchQueuePop && s.turn != nil && *s.turn == q.key {
			s.turn = nil
		}
		s.passTurn()
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
	reply, size, err := s.replyInTurn(ctx, q)
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
		turn, err := s.store.waitOrPop(ctx, q.keys)
		w.turn = turn
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
	s.turn = w.turn
	return w.err
}

// passTurn has another client pop what this one was woken for and has not popped.
func (s *torchSession) passTurn() {
	if s.turn != nil {
		s.store.passTurn(*s.turn)
		s.turn = nil
	}
}
