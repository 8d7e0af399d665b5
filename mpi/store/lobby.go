package store

import (
	"net"
	"net/netip"
	"slices"
	"sync"
)

// lobby holds connections that have not said yet whose they are, or no more than hello. A PyTorch 1.13 client's second one
// never does, and is never sent away: from each host as many stay as it has such clients, the oldest ones. Of all others there is room
// for some; when there is none for another, the oldest goes.
type lobby struct {
	room    int
	mu      sync.Mutex
	guests  []guest            // the oldest first
	clients map[netip.Addr]int // PyTorch 1.13's that are served, by host
}

type guest struct {
	conn net.Conn
	host netip.Addr
}

// hostOf is the other end's address, without its port; the zero Addr where it is not TCP's.
func hostOf(conn net.Conn) netip.Addr {
	addr, _ := conn.RemoteAddr().(*net.TCPAddr)
	return addr.AddrPort().Addr().Unmap()
}

// enter adds conn, until leave.
func (l *lobby) enter(conn net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.guests = append(l.guests, guest{conn, hostOf(conn)})
	l.settle()
}

// leave tells whether conn was still there.
func (l *lobby) leave(conn net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.guests, func(g guest) bool { return g.conn == conn })
	if i < 0 {
		return false
	}
	l.guests = slices.Delete(l.guests, i, i+1)
	return true
}

// serving counts a PyTorch 1.13 client of the host (+1), or one less (-1).
func (l *lobby) serving(host netip.Addr, change int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.clients == nil {
		l.clients = make(map[netip.Addr]int)
	}
	if l.clients[host] += change; l.clients[host] == 0 {
		delete(l.clients, host)
	}
	l.settle()
}

// settle sends away those for whom there is no room. mu is held.
func (l *lobby) settle() {
	if len(l.guests) <= l.room {
		return
	}
	stay := make(map[netip.Addr]int)
	var others []net.Conn
	for _, g := range l.guests {
		if stay[g.host] < l.clients[g.host] {
			stay[g.host]++
			continue
		}
		others = append(others, g.conn)
	}
	for _, conn := range others[:max(0, len(others)-l.room)] {
		conn.Close() // its read fails
		l.guests = slices.DeleteFunc(l.guests, func(g guest) bool { return g.conn == conn })
	}
}
