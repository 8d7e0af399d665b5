package auth

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"ddpbatch/internal/backoff"
	"ddpbatch/internal/pause"
)

// Gate accepts the connections to a listener that prove that they know the run's secret. Other hosts
// cannot hold up anybody, however many they are and however slowly they send: each connection has
// Timeout to prove itself, and if there are more than Room at a time, the oldest is closed.
type Gate struct {
	Role string // names the gate in log lines about refused connections
	Room int    // how many connections may be pending, that is, not have proved themselves yet; at least 1

	// Open is this side's part of the handshake. It returns the connection to use from now on, which is conn or wraps it, and the
	// client's hello.
	Open func(ctx context.Context, conn net.Conn) (opened net.Conn, hello []byte, err error)

	Log *slog.Logger // for connections that are refused

	pending  pendingConns
	refused  atomic.Int64 // refused connections, without those of unproved hosts
	unproved unprovedHosts
}

// Serve accepts connections until the caller closes l, and calls serve for each that has
// proved itself, with the client's hello, on a goroutine of its own. It returns when all these
// have returned. The end of ctx interrupts handshakes.
//
// serve owns its connection, unless it returns an error: then Serve closes and logs the connection, as one that
// has not proved itself.
func (g *Gate) Serve(ctx context.Context, l net.Listener, serve func(conn net.Conn, hello []byte) error) {
	var tasks sync.WaitGroup
	defer tasks.Wait()
	for again := (backoff.Backoff{First: 10 * time.Millisecond, Most: time.Second}); ; {
		conn, err := l.Accept()
		switch {
		case err == nil:
			again.Reset()
			g.pending.add(conn, g.Room)
			tasks.Go(func() { g.receive(ctx, conn, serve) })
			continue
		case ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			return
		}
		// For example, there are no file descriptors left: connections that end free some.
		rest := again.Next()
		g.Log.Warn(g.Role+": accept a connection", "err", err, "retry_in", rest)
		if pause.For(ctx, rest) != nil {
			return
		}
	}
}

func (g *Gate) receive(ctx context.Context, conn net.Conn, serve func(net.Conn, []byte) error) {
	opened, hello, err := g.admit(ctx, conn)
	if err == nil {
		err = serve(opened, hello)
	}
	if err != nil {
		conn.Close()
		g.refuse(ctx, conn, err)
	}
}

// admit returns the connection and the hello of a client that knows the secret.
func (g *Gate) admit(ctx context.Context, conn net.Conn) (opened net.Conn, hello []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	opened, hello, err = g.Open(ctx, conn)
	if !g.pending.remove(conn) {
		return nil, nil, errTooManyPending
	}
	return opened, hello, err
}

// refuse logs a refused connection. To keep a flood of them from filling the job's log, it logs hosts that do not know the secret once
// each, and of all other connections the first 16 and then every power of two.
func (g *Gate) refuse(ctx context.Context, conn net.Conn, err error) {
	if ctx.Err() != nil {
		return
	}
	about := []any{"remote", conn.RemoteAddr().String(), "err", err}
	if errors.Is(err, ErrUnproved) {
		if !g.unproved.isNew(conn.RemoteAddr()) {
			return
		}
	} else {
		n := g.refused.Add(1)
		if n > 16 && n&(n-1) != 0 {
			return
		}
		about = append(about, "so_far", n)
	}
	g.Log.Warn(g.Role+": connection refused", about...)
}

// errTooManyPending is the error of the oldest handshake if there are too many.
var errTooManyPending = errors.New("it had not proved itself when too many others came after it")

// pendingConns holds the connections that have not proved themselves yet. If there is no room for another, it closes the
// oldest: a handshake takes a rank some milliseconds, so a connection that has not finished it when so many
// others have come is hardly a rank's.
type pendingConns struct {
	mu    sync.Mutex
	conns []net.Conn // the oldest first
}

// add adds conn, which stays until remove. If there are room connections already, it closes the oldest.
func (c *pendingConns) add(conn net.Conn, room int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.conns) >= room {
		c.conns[0].Close() // its handshake fails
		c.conns = slices.Delete(c.conns, 0, 1)
	}
	c.conns = append(c.conns, conn)
}

// remove reports whether conn was still there.
func (c *pendingConns) remove(conn net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.Index(c.conns, conn)
	if i < 0 {
		return false
	}
	c.conns = slices.Delete(c.conns, i, i+1)
	return true
}

// maxUnproved is how many hosts that do not know the secret are remembered and logged.
const maxUnproved = 1024

// unprovedHosts remembers the hosts whose proof was wrong. The zero value is empty.
type unprovedHosts struct {
	mu    sync.Mutex
	hosts map[string]bool
}

// isNew reports whether the host of addr is seen for the first time. After maxUnproved hosts it always returns false.
func (s *unprovedHosts) isNew(addr net.Addr) bool {
	host, _, err := net.SplitHostPort(addr.String())
	if err != nil {
		host = addr.String()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hosts[host] || len(s.hosts) == maxUnproved {
		return false
	}
	if s.hosts == nil {
		s.hosts = make(map[string]bool)
	}
	s.hosts[host] = true
	return true
}
