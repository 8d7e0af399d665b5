package auth

import (
	"errors"
	"net"
	"slices"
	"sync"
)

// errCrowded is why the oldest of too many handshakes ends.
var errCrowded = errors.New("it had proved nothing yet when too many others came after it")

// crowd holds the connections that have proved nothing yet. When there is no room for another, the
// oldest goes: a handshake takes a rank some milliseconds, and whoever is still at it when so many
// have come after it is hardly one.
type crowd struct {
	mu    sync.Mutex
	conns []net.Conn // the oldest first
}

// enter adds conn, until leave, to what are then at most room connections.
func (c *crowd) enter(conn net.Conn, room int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.conns) >= room {
		c.conns[0].Close() // its handshake fails, and leaves
		c.conns = slices.Delete(c.conns, 0, 1)
	}
	c.conns = append(c.conns, conn)
}

// leave tells whether conn was still there.
func (c *crowd) leave(conn net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.Index(c.conns, conn)
	if i < 0 {
		return false
	}
	c.conns = slices.Delete(c.conns, i, i+1)
	return true
}
