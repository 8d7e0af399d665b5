package transport

import (
	"errors"
	"fmt"
	"net"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// spinning is how long ranks poll before they sleep: longer than it takes to wake a sleeper on a busy machine, as
// otherwise one sleep leads to another's.
const spinning = 300 * time.Microsecond

// Sockets is the Fabric of ranks in processes of their own. Each pair of ranks has a TCP connection for control, and for data
// more of them, or shared memory where both are on one machine.
type Sockets struct {
	rank    int
	manner  Manner
	conns   []*tcpLink    // all of them
	control []*sealedLink // by rank; nil at this rank's own place
	data    []Link        // by rank; nil at this rank's own place
	shared  []*sharedLink // by rank; nil where there is none
	near    []int         // ranks with shared memory
	poll    int           // epoll(7): edges of all sockets
	bell    *bell
	closed  bool
	events  [64]unix.EpollEvent
	round   uint   // calls of Ready
	told    []uint // by rank: the round that last told of its data link
}

// newSockets takes over what a meeting has come to.
func newSockets(m *meeting) (_ *Sockets, err error) {
	size := m.cfg.Size
	s := &Sockets{
		rank: m.cfg.Rank, control: make([]*sealedLink, size), data: make([]Link, size), shared: make([]*sharedLink, size), poll: -1,
		bell: m.bell, manner: Manner{Spin: spinning, Yield: m.cfg.crowded(m.near())}, told: make([]uint, size),
	}
	defer func() {
		if err != nil {
			s.closeConns() // the bell and the memory are the meeting's
		}
	}()
	if s.poll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("watch the connections: %w", err)
	}
	for rank, st := range m.seats {
		if rank == s.rank {
			continue
		}
		control, err := s.adopt(st.control.TCPConn, News{Rank: rank})
		if err != nil {
			return nil, fmt.Errorf("rank %d: %w", rank, err)
		}
		s.control[rank] = newSealedLink(control, st.control.keys, controlRecord)
		if st.pair != nil {
			s.shared[rank] = st.pair.link()
			s.data[rank] = s.shared[rank]
			s.near = append(s.near, rank)
		} else if s.data[rank], err = s.adoptAll(st.streams, News{Rank: rank, Data: true}, m.cfg.Encrypt); err != nil {
			return nil, fmt.Errorf("rank %d: %w", rank, err)
		}
	}
	return s, nil
}

// adopt takes a connection over, and watches it for what Ready is to tell.
func (s *Sockets) adopt(conn *net.TCPConn, news News) (*tcpLink, error) {
	l, err := takeOver(conn)
	if err != nil {
		return nil, err
	}
	s.conns = append(s.conns, l)
	event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET, Fd: int32(news.Rank)}
	if news.Data {
		event.Pad = 1 // Fd and Pad are the two halves of what epoll_event(3type) calls data
	}
	if err := unix.EpollCtl(s.poll, unix.EPOLL_CTL_ADD, l.fd, &event); err != nil {
		return nil, fmt.Errorf("watch a connection: %w", err)
	}
	return l, nil
}

// adoptAll makes a data link of its streams.
func (s *Sockets) adoptAll(conns []*sealedConn, news News, encrypt bool) (Link, error) {
	streams := make([]Link, len(conns))
	for i, conn := range conns {
		tcp, err := s.adopt(conn.TCPConn, news)
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

// Rank implements Fabric.
func (s *Sockets) Rank() int { return s.rank }

// Size implements Fabric.
func (s *Sockets) Size() int { return len(s.control) }

// Manner implements Fabric.
func (s *Sockets) Manner() Manner { return s.manner }

// Control implements Fabric.
func (s *Sockets) Control(rank int) Link { return s.control[rank] }

// Data implements Fabric.
func (s *Sockets) Data(rank int) Link { return s.data[rank] }

// Shared implements Fabric.
func (s *Sockets) Shared() []int { return s.near }

// Ready implements Fabric. It tells of a link once, whatever the number of its streams.
func (s *Sockets) Ready(news []News) []News {
	s.round++
	for {
		n, errno := epollNow(s.poll, s.events[:])
		if errno != 0 {
			return news // EINTR; the next look finds them
		}
		for _, event := range s.events[:n] {
			one := News{Rank: int(event.Fd), Data: event.Pad != 0}
			if one.Data {
				if s.told[one.Rank] == s.round {
					continue
				}
				s.told[one.Rank] = s.round
			}
			news = append(news, one)
		}
		if n < len(s.events) {
			return news
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
	errs := []error{s.closeConns(), s.bell.close()}
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

// epollNow is epoll_wait(2) that does not wait.
func epollNow(fd int, events []unix.EpollEvent) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(fd),
		uintptr(unsafe.Pointer(unsafe.SliceData(events))), uintptr(len(events)), 0, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}
