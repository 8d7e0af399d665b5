package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"ddpbatch/internal/auth"
)

// handshakeRoom is the number of connections that may be in the handshake at the same time, in a small group.
const handshakeRoom = 256

// accept accepts connections of higher ranks until l is closed.
func (c *connector) accept(ctx context.Context, l net.Listener) {
	ours := c.ownHello(0, 0, false, nil).encode()
	gate := &auth.Gate{
		Role: role, Room: max(handshakeRoom, c.cfg.Size*(1+c.cfg.streams(false))), Log: c.cfg.Log,
		Open: func(ctx context.Context, conn net.Conn) (net.Conn, []byte, error) {
			theirs, err := auth.Server(ctx, conn, c.key, c.cfg.binding(), ours)
			return conn, theirs, err
		},
	}
	gate.Serve(ctx, l, func(conn net.Conn, theirs []byte) error {
		return c.receiveConn(ctx, sealedConn{conn.(*net.TCPConn), newSealing(c.key, theirs, ours, false)}, theirs)
	})
}

// receiveConn handles a connection that has proved itself.
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

// inboundConn is an accepted connection that has proved itself.
type inboundConn struct {
	conn    sealedConn
	hello   hello
	release func() bool // stops the end of Connect from closing conn, and reports whether it did
}

func (in *inboundConn) refuse(reply answer) error {
	in.conn.keys.sendByte(in.conn, byte(reply))
	return reply.err()
}

// admit sends a welcome, and returns the value of its confirmation. After that, the end of Connect does not close the connection.
func (in *inboundConn) admit(reply answer) (use byte, err error) {
	if err := tune(in.conn.TCPConn); err != nil {
		return 0, err
	}
	if err := in.conn.keys.sendByte(in.conn, byte(reply)); err != nil {
		return 0, fmt.Errorf("send the welcome: %w", err)
	}
	if use, err = in.conn.keys.receiveByte(in.conn); err != nil {
		return 0, fmt.Errorf("wait for the rank to confirm the welcome: %w", err)
	}
	if use != useNoMemory && (use != useMemory || reply != answerSharing) {
		return 0, fmt.Errorf("%w: the rank confirms the welcome with %d", ErrProtocol, use)
	}
	if !in.release() {
		return 0, net.ErrClosed
	}
	return use, in.conn.SetDeadline(time.Time{})
}

// receiveControl admits a rank, and opens the memory that it offers.
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
	if !errors.Is(err, net.ErrClosed) { // otherwise Connect has ended
		c.setReason(r.rank, "%v", err)
		c.drop(r)
	}
	return err
}

// reserve makes the remoteRank of a rank that has proved itself, before it is answered. A further try of the same process replaces the
// previous one, whose answer did not arrive.
func (c *connector) reserve(h hello) (*remoteRank, answer) {
	rank := int(h.rank)
	if int64(h.size) != int64(c.cfg.Size) || int64(h.rank) >= int64(h.size) || rank <= c.cfg.Rank || h.streams < 1 ||
		h.streams > MaxStreams {
		return nil, answerImpossible
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if old := c.remotes[rank]; old != nil {
		switch same := old.nonce == h.nonce; {
		case !same && old.control != nil:
			return nil, answerDuplicate
		case !same, old.try >= h.try, c.missing == 0:
			return nil, answerStale // if the process that has the rank never confirms, it will soon lose it
		}
		c.remove(old)
	}
	r := &remoteRank{
		rank: rank, nonce: h.nonce, try: h.try, local: h.local == 1, controlDone: make(chan struct{}),
		streams: make([]*sealedConn, h.streams),
	}
	c.remotes[rank] = r
	return r, answerWelcome
}

// admitControl admits a control connection, and returns the memory that it shares with the rank, or nil.
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

// openOffer opens the memory that a rank offers, if this rank is to share memory and can open it. Otherwise it returns nil.
func (c *connector) openOffer(h hello) *pairMemory {
	if c.cfg.Sharing == ShareNever || !h.offers() {
		return nil
	}
	p, err := openPairMemory(h)
	if err != nil {
		c.cfg.Log.Debug("cannot use the memory that a rank offers", "rank", h.rank, "err", err)
		return nil
	}
	return p
}

// addControl adds a confirmed control connection, and the memory shared with the rank, or nil.
func (c *connector) addControl(r *remoteRank, conn *sealedConn, p *pairMemory) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.remotes[r.rank] != r {
		return errStale
	}
	r.control, r.memory = conn, p
	if p != nil {
		r.streams = nil
	}
	close(r.controlDone)
	c.countIfComplete(r)
	return nil
}

// receiveStream admits a stream of a data link when its control link is confirmed. If the control link breaks instead, the stream is
// refused. From that the dialing rank learns that it must try again.
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

// awaitingStream returns the rank that waits for the stream of the data link, or nil.
func (c *connector) awaitingStream(h hello) *remoteRank {
	if int64(h.rank) >= int64(c.cfg.Size) {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.remotes[h.rank]
	if r == nil || r.nonce != h.nonce || r.try != h.try || int64(h.stream) > int64(len(r.streams)) || r.streams[h.stream-1] != nil {
		return nil
	}
	return r
}

// addStream adds a confirmed stream of the data link. Streams are numbered from 1.
func (c *connector) addStream(r *remoteRank, stream uint32, conn *sealedConn) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.remotes[r.rank] != r || r.control == nil || int64(stream) > int64(len(r.streams)) || r.streams[stream-1] != nil {
		return errStale
	}
	r.streams[stream-1] = conn
	c.countIfComplete(r)
	return nil
}
