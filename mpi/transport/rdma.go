package transport

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"ddpbatch/mpi/transport/ucx"
)

// rdma is what a rank has of UCX.
type rdma struct {
	worker *ucx.Worker
	links  []*ucx.Link // by rank; nil where data goes another way
	armed  bool        // Arm has found news: the next Sleep returns at once
	ranks  []int       // scratch of ready
}

// deliveryLimit is how long a rank that closes waits until UCX has handed over what was written. Another rank that computes lets UCX work
// four times a second, and the first message of a pair takes several such turns.
const deliveryLimit = 3 * time.Second

// maxSleep bounds one sleep, in milliseconds, where there is UCX: a device that tells of nothing holds up nobody for longer.
const maxSleep = 1000

// ready appends the links with news.
func (r *rdma) ready(links []LinkID) []LinkID {
	r.ranks = r.worker.Ready(r.ranks[:0])
	for _, rank := range r.ranks {
		links = append(links, LinkID{Rank: rank, Data: true})
	}
	return links
}

// controlEvent looks at what epoll says of a control connection: its end is that of data, too.
func (r *rdma) controlEvent(rank int, events uint32) {
	if l := r.links[rank]; l != nil && events&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
		l.PeerGone()
	}
}

// String says what UCX sends by.
func (r *rdma) String() string {
	for _, l := range r.links {
		if l == nil {
			continue
		}
		if lanes := l.Lanes(); lanes != "" {
			return fmt.Sprintf("UCX %v by %s", r.worker.Version(), lanes)
		}
	}
	return fmt.Sprintf("UCX %v", r.worker.Version())
}

// closeRDMA closes the links, and gives back what UCX has if all other ranks have closed theirs, too: until then, for a moment, UCX works
// for them.
func (s *Sockets) closeRDMA() {
	s.readySockets(nil) // tells which ranks are gone: nothing is delivered to these
	delivered := s.rdma.worker.CloseLinks(deliveryLimit)
	s.awaitDelivery()
	if !delivered {
		return
	}
	for deadline := time.Now().Add(linger / 5); time.Now().Before(deadline); time.Sleep(100 * time.Microsecond) {
		s.rdma.worker.Progress()
		if s.allEnded() {
			s.rdma.worker.Destroy()
			return
		}
	}
}

// allEnded reports whether all other ranks have closed their control connections. What they have sent is dropped.
func (s *Sockets) allEnded() bool {
	var scrap [512]byte
	for _, l := range s.control {
		if l == nil {
			continue
		}
		for {
			n, err := l.tcp.Read(scrap[:])
			if err != nil {
				break
			}
			if n == 0 {
				return false
			}
		}
	}
	return true
}

// UsesUCX reports whether data between ranks that share no memory goes through UCX. It and the methods below may be called for nil, which
// has nothing of it.
func (s *Sockets) UsesUCX() bool { return s != nil && s.rdma != nil }

// Network says which UCX it is, and the transports and devices by which the links send, such as "UCX 1.13.1 by rc_mlx5/mlx5_0:1"; empty
// without UCX.
func (s *Sockets) Network() string {
	if !s.UsesUCX() {
		return ""
	}
	return s.rdma.String()
}

// Alloc gives n bytes, all zero, that data links send from and receive into without a copy, until the Sockets are closed; nil where they
// do so from no memory.
func (s *Sockets) Alloc(n int) ([]byte, error) {
	if !s.UsesUCX() {
		return nil, nil
	}
	return s.rdma.worker.Alloc(n)
}

// Register makes memory such as Alloc's. It is not Go's, and is the Sockets' from then on: they call release when they have no more use for
// it. False is returned where they send without a copy from no memory: it stays the caller's.
func (s *Sockets) Register(memory []byte, release func()) (bool, error) {
	if !s.UsesUCX() {
		return false, nil
	}
	err := s.rdma.worker.Register(memory, release)
	return err == nil, err
}
