package transport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"ddpbatch/internal/auth"
)

// Pauses between attempts to reach a rank double from the first to the longest.
const (
	firstPause   = 10 * time.Millisecond
	longestPause = time.Second
)

// route is where a rank listens, and the key of the connections to it.
type route struct {
	addr netip.AddrPort
	key  auth.Secret
}

// dial connects to a lower rank, trying until ctx ends. Its error is one that
// trying again does not mend.
func (s *meeting) dial(ctx context.Context, rank int) error {
	s.note(rank, "it has not published an address")
	text, err := s.cfg.Directory.Get(ctx, addressKey(rank))
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look up rank %d: %w", rank, err)
	}
	addr, machine, ticket, err := decodeEntry(text)
	if err != nil {
		return fmt.Errorf("look up rank %d: %w", rank, err)
	}
	s.note(rank, "%s does not answer", addr)
	st, to := &seat{rank: rank, near: machine == s.machine}, route{addr, s.cfg.key(ticket)}
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		st.try++
		err := s.visit(ctx, to, st)
		if err == nil {
			s.seatAll(st)
			return nil
		}
		st.close()
		st.control, st.pair, st.streams = nil, nil, nil
		if ctx.Err() != nil {
			return nil // the reason of the attempt before says more
		}
		s.note(rank, "%v", err)
		if errors.Is(err, errRefused) {
			return err
		}
		s.cfg.Log.Debug("another rank could not be reached yet", "rank", rank, "addr", addr, "err", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// visit makes one try at st's rank, and offers memory if that is on the same machine. What it has opened when it
// fails is in st.
func (s *meeting) visit(ctx context.Context, to route, st *seat) (err error) {
	if s.cfg.Sharing == ShareAlways && !st.near {
		return fmt.Errorf("%w: rank %d: %w", errRefused, st.rank, errNoSharing)
	}
	var offer *pair
	if s.cfg.Sharing != ShareNever && st.near {
		if offer, err = newPair(); err != nil {
			return err
		}
	}
	shared := false
	st.control, shared, err = s.knock(ctx, to, st, 0, offer)
	if shared {
		st.pair = offer
		return nil
	}
	if offer != nil {
		offer.close()
	}
	if err != nil {
		return err
	}
	if s.cfg.Sharing == ShareAlways {
		return fmt.Errorf("%w: rank %d: %w", errRefused, st.rank, errNoSharing)
	}
	return s.visitMore(ctx, to, st)
}

// visitMore opens the streams of the data link.
func (s *meeting) visitMore(ctx context.Context, to route, st *seat) error {
	st.streams = make([]*sealedConn, s.cfg.streams(st.near))
	errs := make([]error, len(st.streams))
	var tasks sync.WaitGroup
	for i := range st.streams {
		tasks.Go(func() { st.streams[i], _, errs[i] = s.knock(ctx, to, st, i+1, nil) })
	}
	tasks.Wait()
	return cmp.Or(errs...)
}

// knock connects, as the control link or, from 1 on, as a stream of the data link, and tells whether the other rank shares the
// memory offered.
func (s *meeting) knock(ctx context.Context, to route, st *seat, stream int, offer *pair) (_ *sealedConn, shared bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, auth.Timeout)
	defer cancel()
	var dialer net.Dialer
	c, err := dialer.DialContext(ctx, "tcp", to.addr.String())
	if err != nil {
		return nil, false, err
	}
	conn := c.(*net.TCPConn)
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	var keys *sealing
	if err = tune(conn); err == nil {
		keys, shared, err = s.introduce(ctx, conn, to.key, st, stream, offer)
	}
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		conn.Close()
		return nil, false, err
	}
	return &sealedConn{conn, keys}, shared, nil
}

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
