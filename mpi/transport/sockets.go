package transport

import (
	"errors"
	"fmt"
	"net"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// spinTime is how long ranks poll before they sleep. It is longer than waking a sleeper takes on a busy machine, because otherwise one
// sleep causes another. Ranks that share cores poll for crowdedSpin, and yield the core between polls. That is longer than a time slice of
// the scheduler, because the rank that they wait for may not run before one has passed: with 4 ranks on 2 cores, collectives of 128 bytes
// take 0.4 to 0.8 of the time that they take if ranks sleep after 300 us.
const (
	spinTime    = 300 * time.Microsecond
	crowdedSpin = 5 * time.Millisecond
)

// Sockets is the Fabric of a rank that is a process. Each pair of ranks has a TCP connection for control. For data it has more TCP
// connections, shared memory if both are on one machine, or UCX.
type Sockets struct {
	rank       int
	waitPolicy WaitPolicy
	conns      []*tcpLink    // all of them
	control    []*sealedLink // by rank; nil for this rank itself
	data       []Link        // by rank; nil for this rank itself
	shared     []*sharedLink // by rank; nil for ranks without shared memory
	sharing    []int         // ranks with shared memory
	rdma       *rdma         // nil: no data goes through UCX
	poll       int           // an epoll(7) instance, edge-triggered, with all sockets
	pipe       *wakePipe
	closed     bool
	events     [64]unix.EpollEvent
	readyCalls uint   // the number of calls of Ready
	reportedIn []uint // by rank: the number of the call of Ready that last returned its data link
}

// newSockets makes the Fabric from the connections of a connector. rdma is nil without UCX.
func newSockets(c *connector, rdma *rdma) (_ *Sockets, err error) {
	size := c.cfg.Size
	s := &Sockets{
		rank: c.cfg.Rank, control: make([]*sealedLink, size), data: make([]Link, size), shared: make([]*sharedLink, size), poll: -1,
		pipe: c.pipe, waitPolicy: WaitPolicy{Spin: spinTime, LateData: rdma != nil}, reportedIn: make([]uint, size),
		rdma: rdma,
	}
	if c.cfg.oversubscribed(c.countLocal()) {
		s.waitPolicy.Spin, s.waitPolicy.Yield = crowdedSpin, true
	}
	defer func() {
		if err != nil {
			s.closeConns() // the connector closes the pipe and the memory
		}
	}()
	if s.poll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("watch the connections: %w", err)
	}
	for rank, r := range c.remotes {
		if rank == s.rank {
			continue
		}
		control, err := s.adopt(r.control.TCPConn, LinkID{Rank: rank})
		if err != nil {
			return nil, fmt.Errorf("rank %d: %w", rank, err)
		}
		s.control[rank] = newSealedLink(control, r.control.keys, controlRecord)
		if r.memory != nil {
			s.shared[rank] = r.memory.link()
			s.data[rank] = s.shared[rank]
			s.sharing = append(s.sharing, rank)
		} else if rdma != nil {
			s.data[rank] = rdma.links[rank]
			for _, conn := range r.streams {
				conn.Close()
			}
		} else if s.data[rank], err = s.adoptAll(r.streams, LinkID{Rank: rank, Data: true}, c.cfg.Encrypt); err != nil {
			return nil, fmt.Errorf("rank %d: %w", rank, err)
		}
	}
	return s, nil
}

// adopt takes over a connection, and watches it for Ready.
func (s *Sockets) adopt(conn *net.TCPConn, link LinkID) (*tcpLink, error) {
	l, err := takeOver(conn)
	if err != nil {
		return nil, err
	}
	s.conns = append(s.conns, l)
	event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET, Fd: int32(link.Rank)}
	if link.Data {
		event.Pad = 1 // Fd and Pad are the two halves of what epoll_event(3type) calls data
	}
	if err := unix.EpollCtl(s.poll, unix.EPOLL_CTL_ADD, l.fd, &event); err != nil {
		return nil, fmt.Errorf("watch a connection: %w", err)
	}
	return l, nil
}

// adoptAll makes a data link from its streams.
func (s *Sockets) adoptAll(conns []*sealedConn, link LinkID, encrypt bool) (Link, error) {
	streams := make([]Link, len(conns))
	for i, conn := range conns {
		tcp, err := s.adopt(conn.TCPConn, link)
		if err != nil {
			return nil, err
		}
		if streams[i] = tcp; encrypt {
			streams[i] = newSealedLink(tcp, conn.keys, dataRecord)
		}
	}
	if len(streams) == 1 {
		return streams[0], nil
	}
	return newStripedLink(streams, cellBytes), nil
}

func (s *Sockets) Rank() int              { return s.rank }
func (s *Sockets) Size() int              { return len(s.control) }
func (s *Sockets) WaitPolicy() WaitPolicy { return s.waitPolicy }
func (s *Sockets) Control(rank int) Link  { return s.control[rank] }
func (s *Sockets) Data(rank int) Link     { return s.data[rank] }
func (s *Sockets) Shared() []int          { return s.sharing }

// Ready appends a link once, whatever the number of its streams.
func (s *Sockets) Ready(links []LinkID) []LinkID {
	s.readyCalls++
	links = s.readySockets(links)
	if s.rdma != nil {
		links = s.rdma.ready(links) // last, because the end of a control connection is that of the data link, too
	}
	return links
}

// readySockets appends the links of connections that have become ready.
func (s *Sockets) readySockets(links []LinkID) []LinkID {
	for {
		n, errno := epollNow(s.poll, s.events[:])
		if errno != 0 {
			return links // EINTR; the next call finds them
		}
		for _, event := range s.events[:n] {
			link := LinkID{Rank: int(event.Fd), Data: event.Pad != 0}
			if s.rdma != nil && !link.Data {
				s.rdma.controlEvent(link.Rank, event.Events)
			}
			if link.Data {
				if s.reportedIn[link.Rank] == s.readyCalls {
					continue
				}
				s.reportedIn[link.Rank] = s.readyCalls
			}
			links = append(links, link)
		}
		if n < len(s.events) {
			return links
		}
	}
}

// Sleep leaves the links to Ready, but empties the wake pipe itself: the rank that wrote the byte has also disarmed this one, so only the
// goroutine that arms it again may take the byte.
func (s *Sockets) Sleep() {
	fds := [3]unix.PollFd{{Fd: int32(s.poll), Events: unix.POLLIN}, {Fd: int32(s.pipe.read), Events: unix.POLLIN}, {Fd: -1}}
	limit := -1
	if s.rdma != nil {
		if s.rdma.armed {
			s.rdma.armed = false
			return
		}
		fds[2] = unix.PollFd{Fd: int32(s.rdma.worker.Event()), Events: unix.POLLIN}
		limit = maxSleep
	}
	unix.Poll(fds[:], limit) // EINTR counts as an event
	if fds[1].Revents != 0 {
		s.pipe.empty()
	}
}

func (s *Sockets) Wake() { s.pipe.wake() }

func (s *Sockets) Arm() {
	if s.rdma != nil {
		s.rdma.armed = s.rdma.worker.Arm()
	}
	for _, rank := range s.sharing {
		s.shared[rank].mine.asleep.Store(1)
	}
}

func (s *Sockets) Disarm() {
	for _, rank := range s.sharing {
		s.shared[rank].mine.asleep.Store(0)
	}
}

func (s *Sockets) WakeRank(rank int) {
	if l := s.shared[rank]; l != nil {
		l.wakeOther()
	}
}

func (s *Sockets) Close() error {
	if s.closed {
		return nil
	}
	s.closed = true
	if s.rdma == nil {
		s.awaitDelivery()
	} else {
		s.closeRDMA()
	}
	errs := []error{s.closeConns(), s.pipe.close()}
	for _, rank := range s.sharing {
		errs = append(errs, s.shared[rank].close())
	}
	return errors.Join(errs...)
}

// linger is how long Close waits at most for what was written to arrive.
const linger = 250 * time.Millisecond

// awaitDelivery waits until the systems of the other ranks have what was written. Closing a connection with unread data resets it, and that
// discards what is still under way.
func (s *Sockets) awaitDelivery() {
	for _, l := range s.conns {
		unix.Shutdown(l.fd, unix.SHUT_WR)
	}
	deadline := time.Now().Add(linger)
	for _, l := range s.conns {
		for !l.delivered() && time.Now().Before(deadline) {
			time.Sleep(time.Millisecond)
		}
	}
}

func (s *Sockets) closeConns() error {
	var errs []error
	for _, l := range s.conns {
		errs = append(errs, l.close())
	}
	if s.poll >= 0 {
		errs = append(errs, unix.Close(s.poll))
	}
	return errors.Join(errs...)
}

// epollNow calls epoll_wait(2) without waiting.
func epollNow(fd int, events []unix.EpollEvent) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(fd),
		uintptr(unsafe.Pointer(unsafe.SliceData(events))), uintptr(len(events)), 0, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}
