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

// Gate lets in, of all that connect to a listener, those that prove the run's secret. Hosts that prove nothing
// hold up nobody, however many they are and however slowly they speak: each has
// Timeout to prove itself, and of more than Room at a time the oldest is closed.
type Gate struct {
	Role string // refusals are logged under it
	Room int    // connections that have proved nothing yet, at least 1

	// Open is this side's part of the handshake. It returns the connection to go on with, which is conn or on top of it, and the client's
	// hello.
	Open func(ctx context.Context, conn net.Conn) (opened net.Conn, hello []byte, err error)

	Log *slog.Logger // hears of connections that are refused

	pending  pendingConns
	refused  atomic.Int64 // but for unproved hosts
	unproved unprovedHosts
}

// Serve accepts connections until l is closed, which is left to the caller, and calls serve for each that has
// proved itself, with the client's hello, on a goroutine of its own. It returns when all these
// have returned. The end of ctx interrupts handshakes.
//
// serve owns its connection, unless it returns an error: then the connection is refused like one that
// has proved nothing, that is closed and logged.
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
		// Out of file descriptors, say: connections that end give some back.
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

// refuse tells of connections that did not get in: once of each host that does not know the secret, and of all others the first ones, and
// then fewer and fewer, lest a flood of them fills the job's log.
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

// errTooManyPending is why the oldest of too many handshakes ends.
var errTooManyPending = errors.New("it had proved nothing yet when too many others came after it")

// pendingConns holds the connections that have proved nothing yet. When there is no room for another, the
// oldest goes: a handshake takes a rank some milliseconds, and whoever is still at it when so many
// have come after it is hardly one.
type pendingConns struct {
	mu    sync.Mutex
	conns []net.Conn // the oldest first
}

// add adds conn, until remove, to what are then at most room connections.
func (c *pendingConns) add(conn net.Conn, room int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.conns) >= room {
		c.conns[0].Close() // its handshake fails, and leaves
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

// maxUnproved bounds what is remembered, and told, of hosts that are none of the run's.
const maxUnproved = 1024

// unprovedHosts remembers the hosts whose proof was wrong. The zero value remembers none.
type unprovedHosts struct {
	mu    sync.Mutex
	hosts map[string]bool
}

// isNew reports whether the host of addr is seen for the first time. Once maxUnproved hosts have been seen, it is always false.
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
