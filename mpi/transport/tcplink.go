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

// longCopy is from how many bytes on a system call is announced to Go's scheduler: it may take a while.
const longCopy = 64 << 10

// tcpLink is one TCP connection. Its descriptor is out of the hands of Go's poller, which would be woken, at some
// microseconds each, by every arrival on it.
type tcpLink struct {
	fd     int
	vector [2]unix.Iovec
}

// takeOver makes a link of a connection, which it closes.
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

// delivered tells whether the other end's system has all that was written, or the connection is gone.
func (l *tcpLink) delivered() bool {
	fds := [1]unix.PollFd{{Fd: int32(l.fd)}} // POLLERR and POLLHUP are reported unasked
	if gone, err := unix.Poll(fds[:], 0); gone > 0 || err != nil {
		return true
	}
	n, err := unix.IoctlGetInt(l.fd, unix.SIOCOUTQ)
	return err != nil || n == 0
}

func (l *tcpLink) close() error { return unix.Close(l.fd) }

// cellBytes is how many bytes go on one stream of a striped link before the next has its turn.
const cellBytes = 256 << 10

// stripedLink is a Link made of several Links, each over a TCP connection of its own. Its bytes are cut into cells of one size; cell i goes
// by stream i mod len(streams). Both ends count, so nothing is sent beside the bytes.
type stripedLink struct {
	streams []Link
	cell    int
	out, in cellPosition
	failure error // of Read, to be returned by the next one, as this one had bytes
}

// cellPosition is the stream whose cell one direction is in, and how much of that cell is left.
type cellPosition struct{ stream, left int }

func newStripedLink(streams []Link, cell int) *stripedLink {
	return &stripedLink{streams: streams, cell: cell, out: cellPosition{left: cell}, in: cellPosition{left: cell}}
}

// advance moves on by n bytes, which the cell has.
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

// Read ends where the stream ends whose turn it is.
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

// errEnd says that a system call moved nothing although it could have.
var errEnd = errors.New("end of stream")

// tryIO reads or writes without waiting. Nothing to move is no error.
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

// tune sets the options that every connection of a mesh has.
//
// TCP_NODELAY: a collective's small frames must not wait for acknowledgments.
//
// Keep-alives find a host that died while this rank waits for it: 10 s idle, then
// 3 probes 5 s apart, 25 s in all. TCP_USER_TIMEOUT (tcp(7)) would find it sooner while data
// is on its way, but is left alone: it also ends a connection whose window stays
// closed (measured on Linux 6.18), as a healthy rank's does when it computes
// for a while with a frame unread; and it would overrule the keep-alives.
// The mesh's own time-out covers that case.
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

// withinMachine tells whether both ends have one address.
func withinMachine(conn *net.TCPConn) bool {
	local, ok := conn.LocalAddr().(*net.TCPAddr)
	remote, ok2 := conn.RemoteAddr().(*net.TCPAddr)
	return ok && ok2 && local.IP.Equal(remote.IP)
}

// dropPacing gives a connection that crosses no network a congestion control that does not pace what it sends: with BBR, which
// some systems have as their default, loopback moves 5.2 GB/s, with CUBIC 7.4. Where that is not there, the default stays.
func dropPacing(conn *net.TCPConn) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return
	}
	raw.Control(func(fd uintptr) {
		unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, "cubic")
	})
}
