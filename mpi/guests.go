package mpi

import (
	"net"
	"sync"
	"time"
)

// hostLinger is how long a rank that serves the store waits, at its end, for
// the others to leave it.
const hostLinger = 10 * time.Second

// guests counts the clients of a store.
type guests struct {
	mu    sync.Mutex
	here  int
	empty chan struct{} // closed while here is 0
}

func newGuests() *guests {
	g := &guests{empty: make(chan struct{})}
	close(g.empty)
	return g
}

// joined and left are a store.ServerConfig's.
func (g *guests) joined(string, net.Addr) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.here == 0 {
		g.empty = make(chan struct{})
	}
	g.here++
}

func (g *guests) left(string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.here--; g.here == 0 {
		close(g.empty)
	}
}

// wait returns when nobody is here, or after limit.
func (g *guests) wait(limit time.Duration) {
	g.mu.Lock()
	empty := g.empty
	g.mu.Unlock()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-empty:
	case <-timer.C:
	}
}
