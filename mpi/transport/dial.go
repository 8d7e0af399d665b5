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
	"ddpbatch/internal/backoff"
)

// Limits of the pauses between tries to connect to a rank.
const (
	firstPause   = 10 * time.Millisecond
	longestPause = time.Second
)

// listenAddr is the address of a rank, with the key of the connections to it.
type listenAddr struct {
	addr netip.AddrPort
	key  auth.Secret
}

// dialRank connects to a lower rank. It tries until ctx ends. It returns an error if trying again does not help.
func (c *connector) dialRank(ctx context.Context, rank int) error {
	c.setReason(rank, "it has not published an address")
	text, err := c.cfg.Directory.Get(ctx, addressKey(rank))
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look up rank %d: %w", rank, err)
	}
	addr, machine, ticket, err := decodeAddressRecord(text)
	if err != nil {
		return fmt.Errorf("look up rank %d: %w", rank, err)
	}
	c.setReason(rank, "%s does not answer", addr)
	r, to := &remoteRank{rank: rank, local: machine == c.machine}, listenAddr{addr, c.cfg.key(ticket)}
	for wait := (backoff.Backoff{First: firstPause, Most: longestPause}); ; {
		r.try++
		err := c.tryRank(ctx, to, r)
		if err == nil {
			c.addRank(r)
			return nil
		}
		r.close()
		r.control, r.memory, r.streams = nil, nil, nil
		if ctx.Err() != nil {
			return nil // the reason of the previous try says more
		}
		c.setReason(rank, "%v", err)
		if errors.Is(err, errRefused) {
			return err
		}
		c.cfg.Log.Debug("cannot connect to another rank yet", "rank", rank, "addr", addr, "err", err)
		if wait.Wait(ctx) != nil {
			return nil
		}
	}
}

// tryRank tries once to connect to a rank, and offers memory if the rank is on the same machine. If it fails, the connections that it has
// opened are in r.
func (c *connector) tryRank(ctx context.Context, to listenAddr, r *remoteRank) (err error) {
	if c.cfg.Sharing == ShareAlways && !r.local {
		return fmt.Errorf("%w: rank %d: %w", errRefused, r.rank, errNoSharing)
	}
	var offer *pairMemory
	if c.cfg.Sharing != ShareNever && r.local {
		if offer, err = newPairMemory(); err != nil {
			return err
		}
	}
	shared := false
	r.control, shared, err = c.dialConn(ctx, to, r, 0, offer)
	if shared {
		r.memory = offer
		return nil
	}
	if offer != nil {
		offer.close()
	}
	if err != nil {
		return err
	}
	if c.cfg.Sharing == ShareAlways {
		return fmt.Errorf("%w: rank %d: %w", errRefused, r.rank, errNoSharing)
	}
	return c.dialStreams(ctx, to, r)
}

// dialStreams opens the streams of the data link.
func (c *connector) dialStreams(ctx context.Context, to listenAddr, r *remoteRank) error {
	r.streams = make([]*sealedConn, c.cfg.streams(r.local))
	errs := make([]error, len(r.streams))
	var tasks sync.WaitGroup
	for i := range r.streams {
		tasks.Go(func() { r.streams[i], _, errs[i] = c.dialConn(ctx, to, r, i+1, nil) })
	}
	tasks.Wait()
	return cmp.Or(errs...)
}

// dialConn opens a connection: the control link, or a stream of the data link if stream is 1 or more. shared reports whether the other rank
// shares the offered memory.
func (c *connector) dialConn(
	ctx context.Context, to listenAddr, r *remoteRank, stream int, offer *pairMemory,
) (_ *sealedConn, shared bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, auth.Timeout)
	defer cancel()
	var dialer net.Dialer
	dialled, err := dialer.DialContext(ctx, "tcp", to.addr.String())
	if err != nil {
		return nil, false, err
	}
	conn := dialled.(*net.TCPConn)
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	var keys *sealing
	if err = tune(conn); err == nil {
		keys, shared, err = c.dialHandshake(ctx, conn, to.key, r, stream, offer)
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
