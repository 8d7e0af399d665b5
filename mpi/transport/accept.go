package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"ddpbatch/internal/auth"
)

const (
	// lobbyRoom is how many connections may be on their way through the handshake.
	lobbyRoom = 256

	// maxRefusals is how many refused connections a meeting logs.
	maxRefusals = 20
)

// accept lets the higher ranks in until l is closed.
func (s *meeting) accept(ctx context.Context, l net.Listener) {
	waiting := lobby{room: max(lobbyRoom, s.cfg.Size)}
	var tasks sync.WaitGroup
	defer tasks.Wait()
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of descriptors, say: those in the lobby will be free in a moment
			s.cfg.Log.Warn("cannot accept connections of other ranks; trying on", "err", err)
			select {
			case <-ctx.Done():
			case <-time.After(firstPause):
			}
			continue
		}
		waiting.enter(conn)
		tasks.Go(func() {
			if err := s.receive(ctx, conn.(*net.TCPConn), &waiting); err != nil {
				conn.Close()
				s.refuse(ctx, conn, err)
			}
		})
	}
}

// receive takes one connection through the handshake to its rank's place.
func (s *meeting) receive(ctx context.Context, conn *net.TCPConn, waiting *lobby) error {
	ctx, cancel := context.WithTimeout(ctx, handshakeTime)
	defer cancel()
	theirs, err := auth.Server(ctx, conn, s.cfg.Secret, s.cfg.binding(), s.cfg.hello().encode())
	if !waiting.leave(conn) {
		return errors.New("it took long and made room for newer ones")
	}
	if err != nil {
		return err
	}
	h, err := decodeHello(theirs)
	if err != nil {
		return err
	}
	rank, reply := int(h.rank), welcome
	switch {
	case int64(h.size) != int64(s.cfg.Size) || int64(h.rank) >= int64(h.size) || rank <= s.cfg.Rank:
		reply = impossible
	case !s.claim(rank):
		reply = duplicate
	}
	conn.SetWriteDeadline(time.Now().Add(handshakeTime))
	_, err = conn.Write([]byte{byte(reply)})
	conn.SetWriteDeadline(time.Time{})
	if reply != welcome {
		return fmt.Errorf("rank %d of %d: %w", h.rank, h.size, reply.err())
	}
	if err == nil {
		err = tune(conn)
	}
	if err != nil {
		s.settle(rank, nil)
		return fmt.Errorf("welcome rank %d: %w", rank, err)
	}
	s.settle(rank, conn)
	return nil
}

// refuse logs a connection that was not let in, unless the meeting has ended.
// Strangers must not fill the log: after maxRefusals it says no more.
func (s *meeting) refuse(ctx context.Context, conn net.Conn, err error) {
	s.mu.Lock()
	s.refused++
	n := s.refused
	s.mu.Unlock()
	switch {
	case ctx.Err() != nil:
	case n <= maxRefusals:
		s.cfg.Log.Warn("refused a connection", "remote", conn.RemoteAddr().String(), "err", err)
	case n == maxRefusals+1:
		s.cfg.Log.Warn("refused one more connection; others will not be logged")
	}
}
