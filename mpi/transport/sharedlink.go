package transport

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"ddpbatch/mpi/internal/shm"
)

const (
	// ringBytes is the capacity of the ring of each direction: what fits the cores' own caches.
	ringBytes = 256 << 10

	ringSpace = ringBytes + shm.RingOverhead
	sideSpace = 64 // bytes of a cache line
	pairSpace = 2*sideSpace + 2*ringSpace
)

// side is what one of two ranks tells the other through their memory.
type side struct {
	asleep atomic.Uint32 // it wants to be woken by news
	short  atomic.Uint32 // it has more to write than there was room for
	_      [sideSpace - 8]byte
}

// pair is the memory that two ranks share: the sides, then the rings, of the lower rank and of the higher one.
type pair struct {
	segment *shm.Segment
	low     bool // this process is the lower rank
	bell    int  // of the other process
}

// newPair makes the memory of a pair, on the side of the higher rank.
func newPair() (*pair, error) {
	segment, err := shm.Create(pairSpace)
	if err != nil {
		return nil, err
	}
	return &pair{segment: segment, bell: -1}, nil
}

// openPair opens the memory that the higher rank has made.
func openPair(h hello) (*pair, error) {
	handle, err := shm.DecodeHandle(h.memory[:])
	if err != nil {
		return nil, err
	}
	if handle.Size != pairSpace {
		return nil, fmt.Errorf("a pair's memory of %d bytes, not %d", handle.Size, pairSpace)
	}
	segment, err := shm.Open(handle)
	if err != nil {
		return nil, err
	}
	p := &pair{segment: segment, low: true, bell: -1}
	if err := p.openBell(h); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *pair) openBell(h hello) (err error) {
	p.bell, err = openBell(int(h.pid), int(h.bell))
	return err
}

func (p *pair) close() error {
	errs := []error{p.segment.Close()}
	if p.bell >= 0 {
		errs = append(errs, unix.Close(p.bell))
	}
	return errors.Join(errs...)
}

// link lays the link over the memory.
func (p *pair) link() *sharedLink {
	mem := p.segment.Bytes()
	low, high := (*side)(unsafe.Pointer(&mem[0])), (*side)(unsafe.Pointer(&mem[sideSpace]))
	rings := mem[2*sideSpace:]
	fromLow, fromHigh := shm.NewRing(rings[:ringSpace]), shm.NewRing(rings[ringSpace:][:ringSpace])
	if p.low {
		return &sharedLink{pair: p, mine: low, theirs: high, out: fromLow, in: fromHigh}
	}
	return &sharedLink{pair: p, mine: high, theirs: low, out: fromHigh, in: fromLow}
}

// sharedLink is a Link of two rings.
type sharedLink struct {
	pair         *pair
	mine, theirs *side
	out, in      *shm.Ring
}

// Write implements Link.
func (l *sharedLink) Write(head, body []byte) (int, error) {
	n, err := l.out.Write(head, body)
	if short := n < len(head)+len(body); short {
		l.mine.short.Store(1)
		more, again := l.retry(n, head, body) // room may have come before short was set
		n, err = n+more, errors.Join(err, again)
	}
	l.rouse()
	return n, err
}

func (l *sharedLink) retry(n int, head, body []byte) (int, error) {
	if n < len(head) {
		return l.out.Write(head[n:], body)
	}
	return l.out.Write(body[n-len(head):], nil)
}

// Read implements Link.
func (l *sharedLink) Read(buf []byte) (int, error) {
	n, err := l.in.Read(buf)
	if n > 0 && l.theirs.short.Load() == 1 {
		l.theirs.short.Store(0)
		l.rouse()
	}
	return n, err
}

// rouse wakes the other process if it wants to be.
func (l *sharedLink) rouse() {
	if l.theirs.asleep.Load() == 1 && l.theirs.asleep.CompareAndSwap(1, 0) {
		ringAt(l.pair.bell)
	}
}

func (l *sharedLink) close() error { return l.pair.close() }

// bell is how others wake this process: a pipe that they may open by /proc/PID/fd (proc(5)).
type bell struct {
	read, write int
	scratch     [drained / 16]byte // of drain
}

func newBell() (*bell, error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, fmt.Errorf("make a pipe to be woken by: %w", err)
	}
	return &bell{read: fds[0], write: fds[1]}, nil
}

// ring makes the pipe readable. A full one is readable already.
func (b *bell) ring() { ringAt(b.write) }

func ringAt(fd int) {
	unix.Write(fd, stroke) // EAGAIN: full; EPIPE: nobody is there to be woken
}

// stroke is what is written to a bell.
var stroke = []byte{0}

// drained is how many bytes drain takes at most: what a pipe holds (pipe(7)).
const drained = 64 << 10

// drain makes it unreadable again, unless somebody rings without end. It is for one goroutine at a time.
func (b *bell) drain() {
	for range drained / len(b.scratch) {
		if n, err := unix.Read(b.read, b.scratch[:]); n < len(b.scratch) || err != nil {
			return
		}
	}
}

func (b *bell) close() error { return errors.Join(unix.Close(b.read), unix.Close(b.write)) }

// openBell opens the bell of another process, and returns the descriptor to ring.
func openBell(pid, fd int) (int, error) {
	path := fmt.Sprintf("/proc/%d/fd/%d", pid, fd)
	info, err := os.Stat(path)
	if err != nil {
		return -1, fmt.Errorf("open the bell of process %d: %w", pid, err)
	}
	if info.Mode()&os.ModeNamedPipe == 0 {
		return -1, fmt.Errorf("open the bell of process %d: %s is no pipe", pid, path)
	}
	opened, err := unix.Open(path, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open the bell of process %d: %w", pid, err)
	}
	return opened, nil
}
