package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
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
	addr, err := netip.ParseAddrPort(string(text))
	if err != nil {
		return fmt.Errorf("look up rank %d: %q is no address", rank, text)
	}
	s.note(rank, "%s does not answer", addr)
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		conn, err := s.knock(ctx, rank, addr)
		if err == nil {
			s.settle(rank, conn)
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

// knock makes one attempt.
func (s *meeting) knock(ctx context.Context, rank int, addr netip.AddrPort) (_ *net.TCPConn, err error) {
	ctx, cancel := context.WithTimeout(ctx, auth.Timeout)
	defer cancel()
	var dialer net.Dialer
	c, err := dialer.DialContext(ctx, "tcp", addr.String())
	if err != nil {
		return nil, err
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
	theirs, err := auth.Client(ctx, conn, s.cfg.Secret, s.cfg.binding(), s.cfg.hello().encode())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", addr, err)
	}
	h, err := decodeHello(theirs)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", addr, err)
	}
	if int64(h.size) != int64(s.cfg.Size) {
		return nil, fmt.Errorf("%w: rank %d is in a world of %d, and this one in a world of %d: start all ranks with the same world size",
			errRefused, h.rank, h.size, s.cfg.Size)
	}
	if int64(h.rank) != int64(rank) {
		return nil, fmt.Errorf("%s is rank %d, not rank %d", addr, h.rank, rank)
	}
	var reply [1]byte
	if _, err := io.ReadFull(conn, reply[:]); err != nil {
		return nil, fmt.Errorf("%s: wait for its answer: %w", addr, err)
	}
	if err := answer(reply[0]).err(); err != nil {
		return nil, fmt.Errorf("rank %d at %s: %w", rank, addr, err)
	}
	return conn, tune(conn)
}
