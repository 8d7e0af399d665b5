package transport

import (
	"fmt"
	"io"
	"net"
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

// Write implements Link.
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
	n, err := call(unix.SYS_WRITEV, l.fd, unsafe.Pointer(&l.vector), count, len(body) > longCopy)
	l.vector = [2]unix.Iovec{}
	return n, err
}

// Read implements Link.
func (l *tcpLink) Read(buf []byte) (int, error) {
	if len(buf) == 0 {
		return 0, nil
	}
	n, err := call(unix.SYS_READ, l.fd, unsafe.Pointer(unsafe.SliceData(buf)), len(buf), len(buf) > longCopy)
	if n == 0 && err == errEnd {
		return 0, io.EOF
	}
	return n, err
}

// delivered tells whether the other end's system has all that was written, or the connection is gone.
func (l *tcpLink) delivered() bool {
	fds := [1]unix.PollFd{{Fd: int32(l.fd)}} // POLLERR and POLLHUP are told unasked
	if gone, err := unix.Poll(fds[:], 0); gone > 0 || err != nil {
		return true
	}
	n, err := unix.IoctlGetInt(l.fd, unix.SIOCOUTQ)
	return err != nil || n == 0
}

func (l *tcpLink) close() error { return unix.Close(l.fd) }
