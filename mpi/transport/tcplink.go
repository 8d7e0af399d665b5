package transport

import (
	"errors"
	"fmt"
	"io"
	"net"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// longCopy is the size in bytes from which a system call is announced to Go's scheduler, because it may take a while.
const longCopy = 64 << 10

// tcpLink is one TCP connection. Go's poller does not have its descriptor, because every arrival would wake the poller, at the cost of some
// microseconds each.
type tcpLink struct {
	fd     int
	vector [2]unix.Iovec
}

// takeOver makes a link from a connection, and closes conn.
func takeOver(conn *net.TCPConn) (*tcpLink, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd := -1
	var dupErr error
	err = raw.Control(func(original uintptr) { fd, dupErr = unix.FcntlInt(original, unix.F_DUPFD_CLOEXEC, 0) })
	if err == nil {
		err = dupErr
	}
	if err != nil {
		return nil, fmt.Errorf("take over a connection: %w", err)
	}
	conn.Close()
	return &tcpLink{fd: fd}, nil
}

func (l *tcpLink) Write(head, body []byte) (int, error) {
	count := 0
	for _, part := range [2][]byte{head, body} {
		if len(part) > 0 {
			l.vector[count].Base = unsafe.SliceData(part)
			l.vector[count].SetLen(len(part))
			count++
		}
	}
	if count == 0 {
		return 0, nil
	}
	n, err := tryIO(unix.SYS_WRITEV, l.fd, unsafe.Pointer(&l.vector), count, len(body) > longCopy)
	l.vector = [2]unix.Iovec{}
	return n, err
}

func (l *tcpLink) Read(buf []byte) (int, error) {
	if len(buf) == 0 {
		return 0, nil
	}
	n, err := tryIO(unix.SYS_READ, l.fd, unsafe.Pointer(unsafe.SliceData(buf)), len(buf), len(buf) > longCopy)
	if n == 0 && err == errEnd {
		return 0, io.EOF
	}
	return n, err
}

// delivered reports whether the system at the other end has everything that was written, or the connection is gone.
func (l *tcpLink) delivered() bool {
	fds := [1]unix.PollFd{{Fd: int32(l.fd)}} // POLLERR and POLLHUP are reported unasked
	if gone, err := unix.Poll(fds[:], 0); gone > 0 || err != nil {
		return true
	}
	n, err := unix.IoctlGetInt(l.fd, unix.SIOCOUTQ)
	return err != nil || n == 0
}

func (l *tcpLink) close() error { return unix.Close(l.fd) }

// cellBytes is the number of bytes that go over one stream of a striped link before it is the next one's turn.
const cellBytes = 256 << 10

// stripedLink is a Link made of several Links, each over its own TCP connection. Its bytes are divided into cells of one size, and cell i
// goes over stream i mod len(streams). Both ends count, so nothing is sent besides the bytes.
type stripedLink struct {
	streams []Link
	cell    int
	out, in cellPosition
	failure error // of Read; returned by the next call, because this one had bytes
}

// cellPosition is the position of one direction: the stream of the current cell, and how much of the cell is left.
type cellPosition struct{ stream, left int }

func newStripedLink(streams []Link, cell int) *stripedLink {
	return &stripedLink{streams: streams, cell: cell, out: cellPosition{left: cell}, in: cellPosition{left: cell}}
}

// advance moves a position by n bytes, at most to the end of the cell.
func (l *stripedLink) advance(t *cellPosition, n int) {
	if t.left -= n; t.left == 0 {
		*t = cellPosition{stream: (t.stream + 1) % len(l.streams), left: l.cell}
	}
}

func (l *stripedLink) Write(head, body []byte) (int, error) {
	total := 0
	for len(head)+len(body) > 0 {
		h := head[:min(len(head), l.out.left)]
		b := body[:min(len(body), l.out.left-len(h))]
		n, err := l.streams[l.out.stream].Write(h, b)
		total += n
		l.advance(&l.out, n)
		if n < len(h)+len(b) || err != nil {
			return total, err
		}
		head, body = head[len(h):], body[len(b):]
	}
	return total, nil
}

// Read returns the end of the stream whose turn it is as its own end.
func (l *stripedLink) Read(buf []byte) (int, error) {
	total := 0
	for total < len(buf) && l.failure == nil {
		part := buf[total:min(len(buf), total+l.in.left)]
		n, err := l.streams[l.in.stream].Read(part)
		total += n
		l.advance(&l.in, n)
		l.failure = err
		if n < len(part) {
			break
		}
	}
	if total > 0 {
		return total, nil
	}
	return 0, l.failure
}

// errEnd means that a system call has moved nothing although it could have.
var errEnd = errors.New("end of stream")

// tryIO reads or writes without waiting. If it cannot move anything now, that is not an error.
func tryIO(number uintptr, fd int, memory unsafe.Pointer, size int, long bool) (int, error) {
	for {
		var n uintptr
		var errno unix.Errno
		if long {
			n, _, errno = unix.Syscall(number, uintptr(fd), uintptr(memory), uintptr(size))
		} else {
			n, _, errno = unix.RawSyscall(number, uintptr(fd), uintptr(memory), uintptr(size))
		}
		switch {
		case errno == unix.EINTR:
		case errno == unix.EAGAIN:
			return 0, nil
		case errno != 0:
			return 0, errno
		case n == 0:
			return 0, errEnd
		default:
			return int(n), nil
		}
	}
}

// tune sets the options of every connection between ranks.
//
// TCP_NODELAY: the small frames of a collective must not wait for acknowledgments.
//
// Keep-alives detect a host that died while this rank waits for it: after 10 s without data, and 3 probes 5 s apart, 25 s in all.
// TCP_USER_TIMEOUT (tcp(7)) would detect it sooner while data is under way, but is not set: it also ends a connection whose window stays
// closed (measured on Linux 6.18). A healthy rank keeps its window closed when it computes for a while with a frame unread. It would also
// override the keep-alives. The time-out of package mpi covers that case.
func tune(conn *net.TCPConn) error {
	if err := conn.SetNoDelay(true); err != nil {
		return fmt.Errorf("set TCP_NODELAY: %w", err)
	}
	alive := net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3}
	if err := conn.SetKeepAliveConfig(alive); err != nil {
		return fmt.Errorf("set keep-alive: %w", err)
	}
	if withinMachine(conn) {
		dropPacing(conn)
	}
	return nil
}

// withinMachine reports whether both ends have the same address.
func withinMachine(conn *net.TCPConn) bool {
	local, ok := conn.LocalAddr().(*net.TCPAddr)
	remote, ok2 := conn.RemoteAddr().(*net.TCPAddr)
	return ok && ok2 && local.IP.Equal(remote.IP)
}

// dropPacing gives a connection that does not cross a network a congestion control without pacing. With BBR, the default of some systems,
// loopback moves 5.2 GB/s, and with CUBIC 7.4. If CUBIC is missing, the default stays.
func dropPacing(conn *net.TCPConn) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return
	}
	raw.Control(func(fd uintptr) {
		unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, "cubic")
	})
}
