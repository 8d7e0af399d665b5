package transport

import (
	"context"
	"fmt"
	"io"
	"net"
	"time"

	"ddpbatch/internal/auth"
)

// room is how many connections may be on their way through the handshake, in a small group.
const room = 256

// accept lets the higher ranks in until l is closed.
func (s *meeting) accept(ctx context.Context, l net.Listener) {
	gate := &auth.Gate{
		Secret: s.cfg.Secret, Binding: s.cfg.binding(), Hello: s.hello(false, nil).encode(),
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
	if reply != welcome {
		conn.SetWriteDeadline(time.Now().Add(auth.Timeout))
		conn.Write([]byte{byte(reply)})
		return fmt.Errorf("rank %d of %d: %w", h.rank, h.size, reply.err())
	}
	p, err := s.receive(conn, h)
	if err == nil {
		err = tune(conn)
	}
	if err != nil {
		s.settle(rank, nil, nil, false)
		return fmt.Errorf("welcome rank %d: %w", rank, err)
	}
	s.settle(rank, conn, p, h.near == 1)
	return nil
}

// receive welcomes a rank, and opens the memory that it offers.
func (s *meeting) receive(conn *net.TCPConn, h hello) (*pair, error) {
	conn.SetDeadline(time.Now().Add(auth.Timeout))
	defer conn.SetDeadline(time.Time{})
	reply := welcome
	var p *pair
	if h.offers() {
		var err error
		if p, err = openPair(h); err != nil {
			s.cfg.Log.Debug("memory that a rank offers cannot be used", "rank", h.rank, "err", err)
		} else {
			reply = sharing
		}
	}
	if p == nil && s.cfg.Sharing == ShareAlways {
		return nil, errNoSharing
	}
	if _, err := conn.Write([]byte{byte(reply)}); err != nil || p == nil {
		return nil, err
	}
	var use [1]byte
	if _, err := io.ReadFull(conn, use[:]); err != nil {
		p.close()
		return nil, err
	}
	if use[0] != 1 {
		p.close()
		return nil, nil
	}
	return p, nil
}
