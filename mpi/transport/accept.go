package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"ddpbatch/internal/auth"
)

// room is how many connections may be on their way through the handshake, in a small group.
const room = 256

// accept lets the higher ranks in until l is closed.
func (s *meeting) accept(ctx context.Context, l net.Listener) {
	ours := s.hello(0, 0, false, nil).encode()
	gate := &auth.Gate{
		Secret: s.key, Binding: s.cfg.binding(), Hello: ours,
		Room: max(room, s.cfg.Size*(1+s.cfg.streams(false))), Log: s.cfg.Log,
	}
	gate.Serve(ctx, l, func(conn net.Conn, theirs []byte) error {
		return s.receive(ctx, sealedConn{conn.(*net.TCPConn), newSealing(s.key, theirs, ours, false)}, theirs)
	})
}

// receive takes a connection that has proved itself to its place.
func (s *meeting) receive(ctx context.Context, conn sealedConn, theirs []byte) error {
	h, err := decodeHello(theirs)
	if err != nil {
		return err
	}
	v := &visitor{conn: conn, hello: h, release: context.AfterFunc(ctx, func() { conn.Close() })}
	defer v.release()
	conn.SetDeadline(time.Now().Add(auth.Timeout))
	if h.stream == 0 {
		err = s.receiveControl(v)
	} else {
		err = s.receiveStream(ctx, v)
	}
	if err != nil {
		return fmt.Errorf("rank %d of %d: %w", h.rank, h.size, err)
	}
	return nil
}

// receiveControl welcomes a rank, and opens the memory that it offers.
func (s *meeting) receiveControl(v *visitor) error {
	st, reply := s.claim(v.hello)
	if reply != welcome {
		return v.refuse(reply)
	}
	p, err := s.welcome(v)
	if err == nil {
		if err = s.seatControl(st, &v.conn, p); err == nil {
			return nil
		}
	}
	if p != nil {
		p.close()
	}
	if !errors.Is(err, net.ErrClosed) { // or this meeting is over
		s.note(st.rank, "%v", err)
		s.leave(st)
	}
	return err
}

// welcome returns the memory that is shared with the rank, or nil.
func (s *meeting) welcome(v *visitor) (*pair, error) {
	p, reply := s.take(v.hello), welcome
	switch {
	case p != nil:
		reply = sharing
	case s.cfg.Sharing == ShareAlways:
		v.refuse(unshared)
		return nil, errNoSharing
	}
	use, err := v.admit(reply)
	if err != nil || use == useMemory {
		return p, err
	}
	if s.cfg.Sharing == ShareAlways {
		return p, errNoSharing
	}
	if p != nil {
		p.close()
	}
	return nil, nil
}

// receiveStream welcomes a stream of a data link once its control link is confirmed. Where that broke instead, the stream
// is refused, by which the dialling rank learns that it must begin anew.
func (s *meeting) receiveStream(ctx context.Context, v *visitor) error {
	st := s.awaiting(v.hello)
	if st == nil {
		return v.refuse(stray)
	}
	select {
	case <-st.heard:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if s.awaiting(v.hello) != st {
		return v.refuse(stray)
	}
	if _, err := v.admit(welcome); err != nil {
		return err
	}
	return s.seatStream(st, v.hello.stream, &v.conn)
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
