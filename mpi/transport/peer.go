package transport

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// readBuffer lets a header and a small payload arrive in one system call; the
// rest of a large payload is read straight into the receiver's buffer.
const readBuffer = 16 << 10

// peer is the connection to one other rank.
//
// Its reader goroutine alone reads: a header, then, once Recv has posted a
// buffer, the payload into it. So a goodbye or a death is noticed while nobody
// waits for this rank. Frames are written by whoever sends, as far as the socket
// takes them at once; the writer goroutine does the rest. So every rank can send
// before it receives, whatever the size, and a ring does not lock up.
type peer struct {
	rank int
	conn *net.TCPConn

	in   *bufio.Reader
	post chan []byte   // Recv's buffer; holds one
	got  chan error    // what became of it; holds one
	gone chan struct{} // closed at the peer's goodbye
	last atomic.Uint64 // sequence number of its newest frame; of its last call, once gone

	mu      sync.Mutex    // guards what follows
	stopped bool          // nothing more may be written
	partial bool          // the writer goroutine has the rest of a frame
	rest    chan struct{} // tells the writer goroutine of it
	sent    chan error    // what became of it; holds one
	head    [headerSize]byte
	frame   [2][]byte   // head and payload, being written
	buffers net.Buffers // the same for the writer goroutine
	raw     syscall.RawConn
	attempt func(fd uintptr) bool
	vector  [2]unix.Iovec // frame, for the kernel
	wrote   int
	errno   unix.Errno
}

func newPeer(rank int, conn *net.TCPConn) (*peer, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("rank %d: %w", rank, err)
	}
	p := &peer{
		rank: rank, conn: conn, raw: raw,
		in:   bufio.NewReaderSize(conn, readBuffer),
		post: make(chan []byte, 1), got: make(chan error, 1), gone: make(chan struct{}),
		rest: make(chan struct{}, 1), sent: make(chan error, 1),
	}
	p.attempt = func(fd uintptr) bool {
		// unix.Writev would allocate.
		n, _, errno := unix.Syscall(unix.SYS_WRITEV, fd, uintptr(unsafe.Pointer(&p.vector)), uintptr(len(p.vector)))
		p.wrote, p.errno = int(n), errno
		return true // never wait here until the socket is writable
	}
	return p, nil
}

// readHeader waits for the next frame.
func (p *peer) readHeader() (header, error) {
	buf, err := p.in.Peek(headerSize)
	if err != nil {
		if len(buf) > 0 && errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return header{}, fmt.Errorf("%w: %w", ErrLost, err)
	}
	h, err := decodeHeader((*[headerSize]byte)(buf))
	p.in.Discard(headerSize)
	return h, err
}

// readPayload fills buf.
func (p *peer) readPayload(buf []byte) error {
	if _, err := io.ReadFull(p.in, buf); err != nil {
		return fmt.Errorf("%w in the middle of a frame: %w", ErrLost, err)
	}
	return nil
}

// send writes one data frame, or what the socket takes of it at once, and leaves the rest to
// the writer goroutine.
func (p *peer) send(call Call, payload []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return ErrClosed
	}
	header{kind: kindData, call: call, length: uint32(len(payload))}.encode(&p.head)
	n, err := p.try(p.head[:], payload)
	if err != nil || n == headerSize+len(payload) {
		return err
	}
	if n >= headerSize {
		p.frame = [2][]byte{nil, payload[n-headerSize:]}
	} else {
		p.frame = [2][]byte{p.head[n:], payload}
	}
	p.buffers = p.frame[:]
	p.partial = true
	p.rest <- struct{}{}
	return nil
}

// try writes what the socket takes at once of head and payload. Callers hold mu.
func (p *peer) try(head, payload []byte) (int, error) {
	p.frame = [2][]byte{head, payload}
	for i, part := range p.frame {
		p.vector[i].Base = unsafe.SliceData(part)
		p.vector[i].SetLen(len(part))
	}
	p.wrote, p.errno = 0, 0
	if err := p.raw.Write(p.attempt); err != nil {
		return 0, err
	}
	switch p.errno {
	case 0:
		return p.wrote, nil
	case unix.EAGAIN, unix.EINTR:
		return 0, nil
	}
	return 0, p.errno
}

// finish is the writer goroutine: it writes what send left over.
func (p *peer) finish() {
	for range p.rest {
		_, err := p.buffers.WriteTo(p.conn)
		p.sent <- err
	}
}

// completed notes that the result of a left-over frame was taken from sent.
func (p *peer) completed() {
	p.mu.Lock()
	p.partial = false
	p.frame = [2][]byte{}
	p.mu.Unlock()
}

// stop ends what this rank writes: with frame, if the socket takes it at once
// and it would not land in the middle of another. It does not wait.
func (p *peer) stop(frame []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return
	}
	p.stopped = true
	if p.partial {
		p.conn.SetWriteDeadline(longAgo) // the writer returns
	} else {
		p.try(frame, nil) // a peer that cannot be told sees the end of the stream
	}
	p.conn.CloseWrite()
}

// bye says goodbye, and waits for the socket to take it, until deadline.
func (p *peer) bye(call Call, deadline time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped || p.partial {
		return
	}
	p.stopped = true
	header{kind: kindBye, call: call}.encode(&p.head)
	p.conn.SetWriteDeadline(deadline)
	p.conn.Write(p.head[:]) // a peer that cannot be told sees the end of the stream
}
