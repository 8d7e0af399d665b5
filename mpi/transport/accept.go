package transport

import (
	"context"
	"fmt"
	"net"
	"time"

	"ddpbatch/internal/auth"
)

// room is how many connections may be on their way through the handshake, in a small group.
const room = 256

// accept lets the higher ranks in until l is closed.
func (s *meeting) accept(ctx context.Context, l net.Listener) {
	gate := &auth.Gate{
		Secret: s.cfg.Secret, Binding: s.cfg.binding(), Hello: s.cfg.hello().encode(),
		Room: max(room, s.cfg.Size), Log: s.cfg.Log,
	}
	gate.Serve(ctx, l, func(conn net.Conn, theirs []byte) error { return s.seat(conn.(*net.TCPConn), theirs) })
}

// seat takes a connection that has proved itself to its rank's place.
func (s *meeting) seat(conn *net.TCPConn, theirs []byte) error {
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
	conn.SetWriteDeadline(time.Now().Add(auth.Timeout))
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
