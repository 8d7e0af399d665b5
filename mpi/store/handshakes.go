package store

import (
	"errors"
	"net"
	"slices"
	"sync"
)

// errCrowded is why the oldest of too many handshakes ends.
var errCrowded = errors.New("it had proved nothing yet when too many others came after it")

// handshakes keeps connections that have proved nothing yet from being more than
// MaxHandshakes. The oldest goes first: a handshake takes a rank some
// milliseconds, and whoever is still at it when so many have come after it is hardly one.
type handshakes struct {
	mu    sync.Mutex
	going []*handshake // the oldest first
}

type handshake struct {
	conn    net.Conn
	crowded bool // guarded by handshakes.mu
}

// begin finds conn a place, which end gives back.
func (h *handshakes) begin(conn net.Conn) *handshake {
	h.mu.Lock()
	defer h.mu.Unlock()
	this := &handshake{conn: conn}
	h.going = append(h.going, this)
	if len(h.going) > MaxHandshakes {
		oldest := h.going[0]
		oldest.crowded = true
		oldest.conn.Close()
		h.going = slices.Delete(h.going, 0, 1)
	}
	return this
}

// end tells whether the connection was closed to make room.
func (h *handshakes) end(this *handshake) (crowded bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.going = slices.DeleteFunc(h.going, func(other *handshake) bool { return other == this })
	return this.crowded
}
