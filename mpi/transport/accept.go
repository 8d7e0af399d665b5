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
	gate.Serve(ctx, l, func(conn net.Conn, theirs []byte) error { return s.seat(ctx, conn.(*net.TCPConn), theirs) })
}

// seat takes a connection that has proved itself to its rank's place.
func (s *meeting) seat(ctx context.Context, conn *net.TCPConn, theirs []byte) error {
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
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	p, err := s.receive(conn, h)
	if err == nil {
		err = tune(conn)
		if !stop() && err == nil {
			err = context.Cause(ctx)
		}
		if err != nil && p != nil {
			p.close()
		}
	}
	if err != nil {
		if ctx.Err() == nil {
			s.note(rank, "%v", err)
		}
		s.settle(rank, nil, nil, false)
		return fmt.Errorf("welcome rank %d: %w", rank, err)
	}
	s.settle(rank, conn, p, h.near == 1)
	return nil
}

// receive welcomes a rank, and opens the memory that it offers.
func (s *meeting) receive(conn *net.TCPConn, h hello) (_ *pair, err error) {
	conn.SetDeadline(time.Now().Add(auth.Timeout))
	defer conn.SetDeadline(time.Time{})
	p := s.take(h)
	defer func() {
		if err != nil && p != nil {
			p.close()
		}
	}()
	reply := welcome
	switch {
	case p != nil:
		reply = sharing
	case s.cfg.Sharing == ShareAlways:
		conn.Write([]byte{byte(unshared)})
		return nil, errNoSharing
	}
	if _, err := conn.Write([]byte{byte(reply)}); err != nil || p == nil {
		return nil, err
	}
	var use [1]byte
	if _, err := io.ReadFull(conn, use[:]); err != nil {
		return nil, err
	}
	if use[0] == useMemory {
		return p, nil
	}
	if s.cfg.Sharing == ShareAlways {
		return nil, errNoSharing
	}
	p.close()
	return nil, nil
}

// take opens the memory that a rank offers, if this one is to share any and can.
func (s *meeting) take(h hello) *pair {
	if s.cfg.Sharing == ShareNever || !h.offers() {
		return nil
	}
	p, err := openPair(h)
	if err != nil {
		s.cfg.Log.Debug("memory that a rank offers cannot be used", "rank", h.rank, "err", err)
		return nil
	}
	return p
}
