package transport

import (
	"net"
	"slices"
	"sync"
)

// lobby holds the connections that have proved nothing yet. When it is full,
// the one that has waited longest makes room: connections that say nothing
// cost a few descriptors, and keep nobody out.
type lobby struct {
	mu      sync.Mutex
	room    int
	waiting []net.Conn // the oldest first
}

func (l *lobby) enter(conn net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) == l.room {
		l.waiting[0].Close() // its goroutine sees it, and calls leave
		l.waiting = slices.Delete(l.waiting, 0, 1)
	}
	l.waiting = append(l.waiting, conn)
}

// leave tells whether conn was still there.
func (l *lobby) leave(conn net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.waiting, conn)
	if i < 0 {
		return false
	}
	l.waiting = slices.Delete(l.waiting, i, i+1)
	return true
}
