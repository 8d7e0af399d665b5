package transport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"ddpbatch/internal/auth"
)

// Pauses between attempts to reach a rank double from the first to the longest.
const (
	firstPause   = 10 * time.Millisecond
	longestPause = time.Second
)

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
	addr, machine, err := decodeEntry(text)
	if err != nil {
		return fmt.Errorf("look up rank %d: %w", rank, err)
	}
	s.note(rank, "%s does not answer", addr)
	st := &seat{rank: rank, near: machine == s.machine}
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		st.try++
		err := s.visit(ctx, addr, st)
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
func (s *meeting) visit(ctx context.Context, addr netip.AddrPort, st *seat) (err error) {
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
	st.control, shared, err = s.knock(ctx, addr, st, 0, offer)
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
	return s.visitMore(ctx, addr, st)
}

// visitMore opens the streams of the data link.
func (s *meeting) visitMore(ctx context.Context, addr netip.AddrPort, st *seat) error {
	st.streams = make([]*net.TCPConn, s.cfg.streams(st.near))
	errs := make([]error, len(st.streams))
	var tasks sync.WaitGroup
	for i := range st.streams {
		tasks.Go(func() { st.streams[i], _, errs[i] = s.knock(ctx, addr, st, i+1, nil) })
	}
	tasks.Wait()
	return cmp.Or(errs...)
}

// knock connects, as the control link or, from 1 on, as a stream of the data link, and tells whether the other rank shares the
// memory offered.
func (s *meeting) knock(ctx context.Context, addr netip.AddrPort, st *seat, stream int, offer *pair) (_ *net.TCPConn, shared bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, auth.Timeout)
	defer cancel()
	var dialer net.Dialer
	c, err := dialer.DialContext(ctx, "tcp", addr.String())
	if err != nil {
		return nil, false, err
	}
	conn := c.(*net.TCPConn)
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	if err = tune(conn); err == nil {
		shared, err = s.introduce(ctx, conn, st, stream, offer)
	}
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		conn.Close()
		return nil, false, err
	}
	return conn, shared, nil
}

// introduce goes through the handshake of a connection that was dialled.
func (s *meeting) introduce(ctx context.Context, conn *net.TCPConn, st *seat, stream int, offer *pair) (shared bool, err error) {
	addr := conn.RemoteAddr()
	ours := s.hello(stream, st.try, st.near, offer)
	theirs, err := auth.Client(ctx, conn, s.cfg.Secret, s.cfg.binding(), ours.encode())
	if err != nil {
		return false, fmt.Errorf("%s: %w", addr, err)
	}
	h, err := decodeHello(theirs)
	if err != nil {
		return false, fmt.Errorf("%s: %w", addr, err)
	}
	if int64(h.size) != int64(s.cfg.Size) {
		return false, fmt.Errorf("%w: rank %d is in a world of %d, and this one in a world of %d: start all ranks with the same world size",
			errRefused, h.rank, h.size, s.cfg.Size)
	}
	if int64(h.rank) != int64(st.rank) {
		return false, fmt.Errorf("%s is rank %d, not rank %d", addr, h.rank, st.rank)
	}
	var reply [1]byte
	if _, err := io.ReadFull(conn, reply[:]); err != nil {
		return false, fmt.Errorf("%s: wait for its answer: %w", addr, err)
	}
	if err := answer(reply[0]).err(); err != nil {
		return false, fmt.Errorf("rank %d at %s: %w", st.rank, addr, err)
	}
	use := useNoMemory
	if answer(reply[0]) == sharing && offer != nil && offer.openBell(h) == nil {
		use = useMemory
	}
	_, err = conn.Write([]byte{use})
	return err == nil && use == useMemory, err
}

// hello says who this rank is, which of its connections this is, and what memory it offers.
func (s *meeting) hello(stream int, try uint32, near bool, offer *pair) hello {
	h := hello{
		rank: uint32(s.cfg.Rank), size: uint32(s.cfg.Size), nonce: s.nonce,
		stream: uint32(stream), streams: uint32(s.cfg.streams(near)), try: try,
	}
	if near {
		h.near = 1
	}
	if s.cfg.Sharing != ShareNever {
		h.pid, h.bell = uint32(os.Getpid()), uint32(s.bell.write)
	}
	if offer != nil {
		h.memory = offer.segment.Handle().Encode()
	}
	return h
}
