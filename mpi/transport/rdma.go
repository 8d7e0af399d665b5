package transport

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"ddpbatch/mpi/transport/ucx"
)

// rdma is a rank's state of UCX.
type rdma struct {
	worker *ucx.Worker
	links  []*ucx.Link // by rank; nil if data travels another way
	armed  bool        // Arm has found something: the next Sleep returns at once
	ranks  []int       // scratch of ready
}

// deliveryLimit is how long a rank that closes waits until UCX has delivered what was written. Another rank that computes lets UCX work
// four times a second, and the first message of a pair takes several such turns.
const deliveryLimit = 3 * time.Second

// maxSleep is the longest sleep, in milliseconds, with UCX. So a device that reports nothing does not delay a rank for longer.
const maxSleep = 1000

// ready appends the links that have become ready.
func (r *rdma) ready(links []LinkID) []LinkID {
	r.ranks = r.worker.Ready(r.ranks[:0])
	for _, rank := range r.ranks {
		links = append(links, LinkID{Rank: rank, Data: true})
	}
	return links
}

// controlEvent handles an epoll event of a control connection. Its end is the end of data, too.
func (r *rdma) controlEvent(rank int, events uint32) {
	if l := r.links[rank]; l != nil && events&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
		l.PeerGone()
	}
}

// String says by which transports and devices UCX sends.
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

// closeRDMA closes the links. If all other ranks close theirs within a short time, it also releases UCX's resources; until then, UCX works
// for the other ranks.
func (s *Sockets) closeRDMA() {
	s.readySockets(nil) // finds the ranks that are gone, to which nothing is delivered
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

// allEnded reports whether all other ranks have closed their control connections. It drops what they have sent.
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

// UsesUCX reports whether data between ranks that do not share memory goes through UCX. s may be nil here and in the methods below; then it
// does not.
func (s *Sockets) UsesUCX() bool { return s != nil && s.rdma != nil }

// Network returns the version of UCX, with the transports and devices that the links send by, such as "UCX 1.13.1 by rc_mlx5/mlx5_0:1". It
// is empty without UCX.
func (s *Sockets) Network() string {
	if !s.UsesUCX() {
		return ""
	}
	return s.rdma.String()
}

// Alloc returns n bytes, all zero, that data links send from and receive into without a copy, until the Sockets are closed. Without UCX it
// returns nil.
func (s *Sockets) Alloc(n int) ([]byte, error) {
	if !s.UsesUCX() {
		return nil, nil
	}
	return s.rdma.worker.Alloc(n)
}

// Register makes memory, which is not Go's, usable like that of Alloc. If it returns true, the memory belongs to the Sockets, which call
// release when they do not need it any more. Otherwise, as without UCX, it still belongs to the caller.
func (s *Sockets) Register(memory []byte, release func()) (bool, error) {
	if !s.UsesUCX() {
		return false, nil
	}
	err := s.rdma.worker.Register(memory, release)
	return err == nil, err
}
