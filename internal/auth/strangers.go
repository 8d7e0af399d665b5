package auth

import (
	"net"
	"sync"
)

// maxStrangers bounds what is remembered, and told, of hosts that are none of the run's.
const maxStrangers = 1024

// strangers remembers the hosts whose proof was wrong. The zero value remembers none.
type strangers struct {
	mu    sync.Mutex
	hosts map[string]bool
}

// isNew tells whether the host of addr was not seen before; of more than maxStrangers, none is new.
func (s *strangers) isNew(addr net.Addr) bool {
	host, _, err := net.SplitHostPort(addr.String())
	if err != nil {
		host = addr.String()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hosts[host] || len(s.hosts) == maxStrangers {
		return false
	}
	if s.hosts == nil {
		s.hosts = make(map[string]bool)
	}
	s.hosts[host] = true
	return true
}
