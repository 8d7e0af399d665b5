package transport

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// spinning is how long ranks poll before they sleep: longer than it takes to wake a sleeper on a busy machine, as
// otherwise one sleep leads to another's.
const spinning = 300 * time.Microsecond

// Sockets is the Fabric of ranks in processes of their own: a TCP connection for each pair of ranks, and shared
// memory beside it for those on one machine.
type Sockets struct {
	rank   int
	manner Manner
	links  []*tcpLink    // by rank; nil at this rank's own place
	shared []*sharedLink // by rank; nil where there is none
	near   []int         // ranks with shared memory
	poll   int           // epoll(7): edges of all sockets
	bell   *bell
	closed bool
	events [64]unix.EpollEvent
}

// newSockets takes over what a meeting has come to.
func newSockets(m *meeting) (_ *Sockets, err error) {
	size := len(m.conns)
	s := &Sockets{
		rank: m.cfg.Rank, links: make([]*tcpLink, size), shared: make([]*sharedLink, size), poll: -1, bell: m.bell,
		manner: Manner{Spin: spinning, Yield: crowded(m.near)},
	}
	defer func() {
		if err != nil {
			s.closeLinks() // the bell and the memory are the meeting's
		}
	}()
	if s.poll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("watch the connections: %w", err)
	}
	for rank, conn := range m.conns {
		if conn == nil {
			continue
		}
		if s.links[rank], err = takeOver(conn); err != nil {
			return nil, fmt.Errorf("rank %d: %w", rank, err)
		}
		if err := s.watch(s.links[rank].fd, rank); err != nil {
			return nil, err
		}
		if p := m.pairs[rank]; p != nil {
			s.shared[rank] = p.link()
			s.near = append(s.near, rank)
		}
	}
	return s, nil
}

func (s *Sockets) watch(fd, rank int) error {
	event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET, Fd: int32(rank)}
	if err := unix.EpollCtl(s.poll, unix.EPOLL_CTL_ADD, fd, &event); err != nil {
		return fmt.Errorf("watch the connection to rank %d: %w", rank, err)
	}
	return nil
}

// Rank implements Fabric.
func (s *Sockets) Rank() int { return s.rank }

// Size implements Fabric.
func (s *Sockets) Size() int { return len(s.links) }

// Manner implements Fabric.
func (s *Sockets) Manner() Manner { return s.manner }

// Control implements Fabric.
func (s *Sockets) Control(rank int) Link { return s.links[rank] }

// Data implements Fabric.
func (s *Sockets) Data(rank int) Link {
	if l := s.shared[rank]; l != nil {
		return l
	}
	return s.links[rank]
}

// Shared implements Fabric.
func (s *Sockets) Shared() []int { return s.near }

// Ready implements Fabric.
func (s *Sockets) Ready(ranks []int) []int {
	for {
		n, errno := epollNow(s.poll, s.events[:])
		if errno != 0 {
			return ranks // EINTR; the next look finds them
		}
		for _, event := range s.events[:n] {
			ranks = append(ranks, int(event.Fd))
		}
		if n < len(s.events) {
			return ranks
		}
	}
}

// Sleep implements Fabric. It leaves the news to Ready, and silences the bell itself: whoever rang has disarmed this
// rank, so nobody must miss the ring but who arms it again.
func (s *Sockets) Sleep() {
	fds := [2]unix.PollFd{{Fd: int32(s.poll), Events: unix.POLLIN}, {Fd: int32(s.bell.read), Events: unix.POLLIN}}
	unix.Poll(fds[:], -1) // EINTR is as good as news
	if fds[1].Revents != 0 {
		s.bell.drain()
	}
}

// Wake implements Fabric.
func (s *Sockets) Wake() { s.bell.ring() }

// Arm implements Fabric.
func (s *Sockets) Arm() {
	for _, rank := range s.near {
		s.shared[rank].mine.asleep.Store(1)
	}
}

// Disarm implements Fabric.
func (s *Sockets) Disarm() {
	for _, rank := range s.near {
		s.shared[rank].mine.asleep.Store(0)
	}
}

// Nudge implements Fabric.
func (s *Sockets) Nudge(rank int) {
	if l := s.shared[rank]; l != nil {
		l.rouse()
	}
}

// Close implements Fabric.
func (s *Sockets) Close() error {
	if s.closed {
		return nil
	}
	s.closed = true
	s.settle()
	errs := []error{s.closeLinks(), s.bell.close()}
	for _, rank := range s.near {
		errs = append(errs, s.shared[rank].close())
	}
	return errors.Join(errs...)
}

// linger bounds how long Close waits for what was written to arrive.
const linger = 250 * time.Millisecond

// settle waits until the other ranks' systems have what was written: a connection that is closed with something unread resets, and
// takes with it what is still on its way.
func (s *Sockets) settle() {
	for _, l := range s.links {
		if l != nil {
			unix.Shutdown(l.fd, unix.SHUT_WR)
		}
	}
	deadline := time.Now().Add(linger)
	for _, l := range s.links {
		for l != nil && !l.delivered() && time.Now().Before(deadline) {
			time.Sleep(time.Millisecond)
		}
	}
}

func (s *Sockets) closeLinks() error {
	var errs []error
	for _, l := range s.links {
		if l != nil {
			errs = append(errs, l.close())
		}
	}
	if s.poll >= 0 {
		errs = append(errs, unix.Close(s.poll))
	}
	return errors.Join(errs...)
}
