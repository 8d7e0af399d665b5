package store

import (
	"net"
	"slices"
	"sync"
)

// lobby holds connections that have said nothing yet. When there is no room for another, the oldest goes.
type lobby struct {
	mu    sync.Mutex
	conns []net.Conn // the oldest first
}

// enter adds conn, until leave, to what are then at most room connections.
func (l *lobby) enter(conn net.Conn, room int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.conns) >= room {
		l.conns[0].Close() // its read fails
		l.conns = slices.Delete(l.conns, 0, 1)
	}
	l.conns = append(l.conns, conn)
}

// leave tells whether conn was still there.
func (l *lobby) leave(conn net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.conns, conn)
	if i < 0 {
		return false
	}
	l.conns = slices.Delete(l.conns, i, i+1)
	return true
}
