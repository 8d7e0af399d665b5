package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
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
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		near := machine == s.machine
		conn, p, err := s.visit(ctx, rank, addr, near)
		if err == nil {
			s.settle(rank, conn, p, near)
			return nil
		}
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

// visit makes one attempt, and offers memory to a rank on the same machine.
func (s *meeting) visit(ctx context.Context, rank int, addr netip.AddrPort, near bool) (*net.TCPConn, *pair, error) {
	if s.cfg.Sharing == ShareNever || !near {
		if s.cfg.Sharing == ShareAlways {
			return nil, nil, fmt.Errorf("%w: rank %d: %w", errRefused, rank, errNoSharing)
		}
		conn, _, err := s.knock(ctx, rank, addr, near, nil)
		return conn, nil, err
	}
	p, err := newPair()
	if err != nil {
		return nil, nil, err
	}
	conn, shared, err := s.knock(ctx, rank, addr, near, p)
	if err == nil && shared {
		return conn, p, nil
	}
	p.close()
	if err == nil && s.cfg.Sharing == ShareAlways {
		conn.Close()
		return nil, nil, fmt.Errorf("%w: rank %d: %w", errRefused, rank, errNoSharing)
	}
	return conn, nil, err
}

// knock connects, and tells whether the other rank shares the memory offered.
func (s *meeting) knock(ctx context.Context, rank int, addr netip.AddrPort, near bool, offer *pair) (_ *net.TCPConn, shared bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, auth.Timeout)
	defer cancel()
	var dialer net.Dialer
	c, err := dialer.DialContext(ctx, "tcp", addr.String())
	if err != nil {
		return nil, false, err
	}
	conn := c.(*net.TCPConn)
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer func() {
		if !stop() && err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			conn.Close()
		}
	}()
	theirs, err := auth.Client(ctx, conn, s.cfg.Secret, s.cfg.binding(), s.hello(near, offer).encode())
	if err != nil {
		return nil, false, fmt.Errorf("%s: %w", addr, err)
	}
	h, err := decodeHello(theirs)
	if err != nil {
		return nil, false, fmt.Errorf("%s: %w", addr, err)
	}
	if int64(h.size) != int64(s.cfg.Size) {
		return nil, false, fmt.Errorf("%w: rank %d is in a world of %d, and this one in a world of %d: start all ranks with the same world size",
			errRefused, h.rank, h.size, s.cfg.Size)
	}
	if int64(h.rank) != int64(rank) {
		return nil, false, fmt.Errorf("%s is rank %d, not rank %d", addr, h.rank, rank)
	}
	var reply [1]byte
	if _, err := io.ReadFull(conn, reply[:]); err != nil {
		return nil, false, fmt.Errorf("%s: wait for its answer: %w", addr, err)
	}
	if err := answer(reply[0]).err(); err != nil {
		return nil, false, fmt.Errorf("rank %d at %s: %w", rank, addr, err)
	}
	if answer(reply[0]) == sharing && offer != nil {
		if shared, err = offer.confirm(conn, h); err != nil {
			return nil, false, fmt.Errorf("rank %d at %s: %w", rank, addr, err)
		}
	}
	return conn, shared, tune(conn)
}

// confirm opens the bell of the rank that has opened the memory, and tells it whether that worked.
func (p *pair) confirm(conn *net.TCPConn, h hello) (bool, error) {
	use := useMemory
	if err := p.openBell(h); err != nil {
		use = useNoMemory
	}
	_, err := conn.Write([]byte{use})
	return use == useMemory, err
}

// hello says who this rank is, and what memory it offers.
func (s *meeting) hello(near bool, offer *pair) hello {
	h := hello{rank: uint32(s.cfg.Rank), size: uint32(s.cfg.Size)}
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
