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

// Bounds of the pauses between attempts to reach a rank.
const (
	firstPause   = 10 * time.Millisecond
	longestPause = time.Second
)

// listenAddr is where a rank listens, and the key of the connections to it.
type listenAddr struct {
	addr netip.AddrPort
	key  auth.Secret
}

// dialRank connects to a lower rank, trying until ctx ends. Its error is one that
// trying again does not mend.
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
			return nil // the reason of the attempt before says more
		}
		c.setReason(rank, "%v", err)
		if errors.Is(err, errRefused) {
			return err
		}
		c.cfg.Log.Debug("another rank could not be reached yet", "rank", rank, "addr", addr, "err", err)
		if wait.Wait(ctx) != nil {
			return nil
		}
	}
}

// tryRank makes one try at a rank, and offers memory if that is on the same machine. What it has opened when it
// fails is in r.
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

// dialConn connects, as the control link or, from 1 on, as a stream of the data link, and tells whether the other rank shares the
// memory offered.
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

// handshakeRoom is how many connections may be on their way through the handshake, in a small group.
const handshakeRoom = 256

// accept lets the higher ranks in until l is closed.
func (c *connector) accept(ctx context.Context, l net.Listener) {
	ours := c.ownHello(0, 0, false, nil).encode()
	gate := &auth.Gate{
		Role: c.cfg.binding().Role, Room: max(handshakeRoom, c.cfg.Size*(1+c.cfg.streams(false))), Log: c.cfg.Log,
		Open: func(ctx context.Context, conn net.Conn) (net.Conn, []byte, error) {
			theirs, err := auth.Server(ctx, conn, c.key, c.cfg.binding(), ours)
			return conn, theirs, err
		},
	}
	gate.Serve(ctx, l, func(conn net.Conn, theirs []byte) error {
		return c.receiveConn(ctx, sealedConn{conn.(*net.TCPConn), newSealing(c.key, theirs, ours, false)}, theirs)
	})
}

// receiveConn serves a connection that has proved itself.
func (c *connector) receiveConn(ctx context.Context, conn sealedConn, theirs []byte) error {
	h, err := decodeHello(theirs)
	if err != nil {
		return err
	}
	in := &inboundConn{conn: conn, hello: h, release: context.AfterFunc(ctx, func() { conn.Close() })}
	defer in.release()
	conn.SetDeadline(time.Now().Add(auth.Timeout))
	if h.stream == 0 {
		err = c.receiveControl(in)
	} else {
		err = c.receiveStream(ctx, in)
	}
	if err != nil {
		return fmt.Errorf("rank %d of %d: %w", h.rank, h.size, err)
	}
	return nil
}

// receiveControl welcomes a rank, and opens the memory that it offers.
func (c *connector) receiveControl(in *inboundConn) error {
	r, reply := c.reserve(in.hello)
	if reply != answerWelcome {
		return in.refuse(reply)
	}
	p, err := c.admitControl(in)
	if err == nil {
		if err = c.addControl(r, &in.conn, p); err == nil {
			return nil
		}
	}
	if p != nil {
		p.close()
	}
	if !errors.Is(err, net.ErrClosed) { // or this connector is done
		c.setReason(r.rank, "%v", err)
		c.drop(r)
	}
	return err
}

// admitControl admits a control connection, and returns the memory that is shared with the rank, or nil.
func (c *connector) admitControl(in *inboundConn) (*pairMemory, error) {
	p, reply := c.openOffer(in.hello), answerWelcome
	switch {
	case p != nil:
		reply = answerSharing
	case c.cfg.Sharing == ShareAlways:
		in.refuse(answerUnshared)
		return nil, errNoSharing
	}
	use, err := in.admit(reply)
	if err != nil || use == useMemory {
		return p, err
	}
	if c.cfg.Sharing == ShareAlways {
		return p, errNoSharing
	}
	if p != nil {
		p.close()
	}
	return nil, nil
}

// receiveStream welcomes a stream of a data link once its control link is confirmed. Where that broke instead, the stream
// is refused, by which the dialling rank learns that it must begin anew.
func (c *connector) receiveStream(ctx context.Context, in *inboundConn) error {
	r := c.awaitingStream(in.hello)
	if r == nil {
		return in.refuse(answerStale)
	}
	select {
	case <-r.controlDone:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if c.awaitingStream(in.hello) != r {
		return in.refuse(answerStale)
	}
	if _, err := in.admit(answerWelcome); err != nil {
		return err
	}
	return c.addStream(r, in.hello.stream, &in.conn)
}

// openOffer opens the memory that a rank offers, if this one is to share any and can.
func (c *connector) openOffer(h hello) *pairMemory {
	if c.cfg.Sharing == ShareNever || !h.offers() {
		return nil
	}
	p, err := openPairMemory(h)
	if err != nil {
		c.cfg.Log.Debug("memory that a rank offers cannot be used", "rank", h.rank, "err", err)
		return nil
	}
	return p
}
