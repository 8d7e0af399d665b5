package transport

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"
)

const (
	// lastWords is how long a failed write waits for the reader to find out why.
	lastWords = 100 * time.Millisecond

	// linger bounds the goodbyes of Close.
	linger = time.Second

	// pastCalls is how many calls a rank remembers, to set them against the frames of one
	// that lags behind.
	pastCalls = 16
)

// longAgo is a deadline that makes whoever reads or writes return at once.
var longAgo = time.Unix(1, 0)

// TCP is the Mesh of one TCP connection for each pair of ranks.
type TCP struct {
	rank, size int
	peers      []*peer // by rank; nil at this rank's own place
	timeout    time.Duration
	timer      *time.Timer
	describe   func(Call) string
	tasks      sync.WaitGroup
	failed     chan struct{} // closed when err is set and the other ranks are told

	mu     sync.Mutex // guards what follows
	err    error      // the first failure
	closed bool
	call   Call
	past   [pastCalls]Call // the last calls, the current one included, by Seq modulo their number
	early  []arrival       // frames of calls that this rank has not begun; each peer has at most one
}

// arrival is a frame whose payload nobody has asked for yet.
type arrival struct {
	from int
	call Call
}

var _ Mesh = (*TCP)(nil)

// newTCP takes over conns, which are indexed by rank and have finished their handshake.
func newTCP(cfg Config, conns []*net.TCPConn) (*TCP, error) {
	m := &TCP{
		rank: cfg.Rank, size: cfg.Size, timeout: cfg.Timeout, describe: cfg.Describe,
		peers:  make([]*peer, cfg.Size),
		timer:  time.NewTimer(cfg.Timeout),
		failed: make(chan struct{}),
		early:  make([]arrival, 0, cfg.Size),
	}
	for rank, conn := range conns {
		if rank == m.rank {
			continue
		}
		p, err := newPeer(rank, conn)
		if err != nil {
			return nil, err
		}
		m.peers[rank] = p
	}
	for _, p := range m.peers {
		if p != nil {
			m.tasks.Go(func() { m.read(p) })
			m.tasks.Go(p.finish)
		}
	}
	return m, nil
}

// Rank is this process's place in the group, from 0.
func (m *TCP) Rank() int { return m.rank }

// Size is the number of ranks.
func (m *TCP) Size() int { return m.size }

// Begin implements Mesh.
func (m *TCP) Begin(call Call) error {
	m.mu.Lock()
	if m.err != nil {
		m.mu.Unlock()
		return m.cause()
	}
	m.call, m.past[call.Seq%pastCalls] = call, call
	kept := m.early[:0]
	var mismatch error
	for _, a := range m.early {
		if a.call.Seq > call.Seq {
			kept = append(kept, a)
		} else if a.call != call {
			mismatch = m.mismatch(a)
		}
	}
	m.early = kept
	m.mu.Unlock()
	if mismatch != nil {
		return m.fail(mismatch)
	}
	return nil
}

// Send implements Mesh.
func (m *TCP) Send(ctx context.Context, to int, payload []byte) error {
	if len(payload) > MaxPayload {
		panic("transport: payload longer than MaxPayload")
	}
	if err := m.Sent(ctx, to); err != nil {
		return err
	}
	p := m.peers[to]
	select {
	case <-m.failed:
		return m.cause()
	case <-p.gone:
		return m.fail(p.left())
	default:
	}
	if err := p.send(m.current(), payload); err != nil {
		return m.failWrite(p, err)
	}
	return nil
}

// Sent implements Mesh.
func (m *TCP) Sent(ctx context.Context, to int) error {
	p := m.peers[to]
	if !p.partial { // set and cleared by this goroutine alone
		return nil
	}
	err, done := m.await(ctx, p, p.sent)
	if done {
		p.completed()
		if err != nil {
			return m.failWrite(p, err)
		}
		return nil
	}
	p.conn.SetWriteDeadline(longAgo) // the writer lets go of payload
	if werr := <-p.sent; werr == nil && p.hasLeft() {
		err = nil // it had all of the frame before it left
	} else {
		err = m.fail(err)
	}
	p.completed()
	return err
}

// Recv implements Mesh.
func (m *TCP) Recv(ctx context.Context, from int, buf []byte) error {
	p := m.peers[from]
	p.post <- buf
	err, done := m.await(ctx, p, p.got)
	if done {
		if err != nil {
			return m.fail(err)
		}
		return nil
	}
	select {
	case <-p.post: // the reader never saw buf
		return m.fail(err)
	default:
	}
	if p.hasLeft() { // the goodbye came right behind this very frame
		if err := <-p.got; err != nil {
			return m.fail(err)
		}
		return nil
	}
	err = m.fail(err)
	p.conn.SetReadDeadline(longAgo) // the reader lets go of buf
	<-p.got
	return err
}

// await returns what comes from result, and true; or else why it is no use to wait longer.
func (m *TCP) await(ctx context.Context, p *peer, result <-chan error) (error, bool) {
	m.timer.Reset(m.timeout)
	select {
	case err := <-result:
		return err, true
	case <-ctx.Done():
		return &PeerError{Rank: p.rank, Err: fmt.Errorf("waited for it until %w", contextError(ctx))}, false
	case <-m.failed:
		return m.cause(), false
	case <-p.gone:
		return p.left(), false
	case <-m.timer.C:
		return &PeerError{Rank: p.rank, Err: fmt.Errorf("%w for %v: %s", ErrTimeout, m.timeout, m.whereabouts(p))}, false
	}
}

// contextError is ctx's error, and its cause where that says more.
func contextError(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == err {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// whereabouts says what a rank that keeps this one waiting was last known to do.
func (m *TCP) whereabouts(p *peer) string {
	switch last, now := p.last.Load(), m.current().Seq; {
	case last == 0:
		return "nothing has come from it yet"
	case last < now:
		return fmt.Sprintf("its last frame here was of call #%d", last)
	default:
		return fmt.Sprintf("it is in call #%d and waits itself, or hangs", last)
	}
}

func (m *TCP) current() Call {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.call
}

// Close implements Mesh.
func (m *TCP) Close() error {
	m.mu.Lock()
	if m.closed {
		defer m.mu.Unlock()
		return nil
	}
	m.closed = true
	wasFine := m.err == nil
	if wasFine {
		m.err = ErrClosed
		close(m.failed)
	}
	call := m.call
	m.mu.Unlock()
	<-m.failed
	deadline := time.Now().Add(linger)
	for _, p := range m.peers {
		if p == nil {
			continue
		}
		if wasFine {
			p.bye(call, deadline)
		}
		p.conn.Close()
		close(p.rest)
	}
	m.timer.Stop()
	m.tasks.Wait()
	return nil
}
