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
	// ringBytes is the capacity of the ring of each direction. It fits in the cores' own caches.
	ringBytes = 256 << 10

	ringSpace      = ringBytes + shm.RingOverhead
	flagsSpace     = 64 // bytes of a cache line
	pairMemorySize = 2*flagsSpace + 2*ringSpace
)

// sharedFlags are flags that one of two ranks sets for the other in their shared memory.
type sharedFlags struct {
	asleep    atomic.Uint32 // it wants to be woken when data comes
	wantsRoom atomic.Uint32 // it has more to write than the ring had room for
	_         [flagsSpace - 8]byte
}

// pairMemory is the memory that two ranks share: the flags and then the rings, first those of the lower rank.
type pairMemory struct {
	segment *shm.Segment
	low     bool // this process is the lower rank
	wakeFD  int  // the wake pipe of the other process
}

// newPairMemory makes the memory of a pair, on the side of the higher rank.
func newPairMemory() (*pairMemory, error) {
	segment, err := shm.Create(pairMemorySize)
	if err != nil {
		return nil, err
	}
	return &pairMemory{segment: segment, wakeFD: -1}, nil
}

// openPairMemory opens the memory that the higher rank offers.
func openPairMemory(h hello) (*pairMemory, error) {
	handle, err := shm.DecodeHandle(h.memory[:])
	if err != nil {
		return nil, err
	}
	if handle.Size != pairMemorySize {
		return nil, fmt.Errorf("the shared memory of a pair must have %d bytes, got %d", pairMemorySize, handle.Size)
	}
	segment, err := shm.Open(handle)
	if err != nil {
		return nil, err
	}
	p := &pairMemory{segment: segment, low: true, wakeFD: -1}
	if err := p.openWakePipe(h); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *pairMemory) openWakePipe(h hello) (err error) {
	p.wakeFD, err = openWakePipe(int(h.pid), int(h.pipe))
	return err
}

func (p *pairMemory) close() error {
	errs := []error{p.segment.Close()}
	if p.wakeFD >= 0 {
		errs = append(errs, unix.Close(p.wakeFD))
	}
	return errors.Join(errs...)
}

// link returns the link over the memory.
func (p *pairMemory) link() *sharedLink {
	mem := p.segment.Bytes()
	low, high := (*sharedFlags)(unsafe.Pointer(&mem[0])), (*sharedFlags)(unsafe.Pointer(&mem[flagsSpace]))
	rings := mem[2*flagsSpace:]
	fromLow, fromHigh := shm.NewRing(rings[:ringSpace]), shm.NewRing(rings[ringSpace:][:ringSpace])
	if p.low {
		return &sharedLink{memory: p, mine: low, theirs: high, out: fromLow, in: fromHigh}
	}
	return &sharedLink{memory: p, mine: high, theirs: low, out: fromHigh, in: fromLow}
}

// sharedLink is a Link made of two rings.
type sharedLink struct {
	memory       *pairMemory
	mine, theirs *sharedFlags
	out, in      *shm.Ring
}

func (l *sharedLink) Write(head, body []byte) (int, error) {
	n, err := l.out.Write(head, body)
	if short := n < len(head)+len(body); short {
		l.mine.wantsRoom.Store(1)
		more, again := l.retry(n, head, body) // the reader may have made room before wantsRoom was set
		n, err = n+more, errors.Join(err, again)
	}
	l.wakeOther()
	return n, err
}

func (l *sharedLink) retry(n int, head, body []byte) (int, error) {
	if n < len(head) {
		return l.out.Write(head[n:], body)
	}
	return l.out.Write(body[n-len(head):], nil)
}

func (l *sharedLink) Read(buf []byte) (int, error) {
	n, err := l.in.Read(buf)
	if n > 0 && l.theirs.wantsRoom.Load() == 1 {
		l.theirs.wantsRoom.Store(0)
		l.wakeOther()
	}
	return n, err
}

// wakeOther wakes the other process if it is asleep.
func (l *sharedLink) wakeOther() {
	if l.theirs.asleep.Load() == 1 && l.theirs.asleep.CompareAndSwap(1, 0) {
		wakeAt(l.memory.wakeFD)
	}
}

func (l *sharedLink) close() error { return l.memory.close() }

// wakePipe is a pipe by which other processes wake this one. They open it through /proc/PID/fd (proc(5)).
type wakePipe struct {
	read, write int
	scratch     [pipeCapacity / 16]byte // for empty
}

func newWakePipe() (*wakePipe, error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, fmt.Errorf("make a wake pipe: %w", err)
	}
	return &wakePipe{read: fds[0], write: fds[1]}, nil
}

// wake makes the pipe readable. A full one is readable already.
func (w *wakePipe) wake() { wakeAt(w.write) }

func wakeAt(fd int) {
	unix.Write(fd, wakeByte) // EAGAIN: the pipe is full; EPIPE: the other process is gone
}

// wakeByte is the content of a write to a wake pipe.
var wakeByte = []byte{0}

// pipeCapacity is the capacity of a pipe (pipe(7)). empty reads at most as much.
const pipeCapacity = 64 << 10

// empty makes the pipe unreadable again, unless others keep writing to it. It is for one goroutine at a time.
func (w *wakePipe) empty() {
	for range pipeCapacity / len(w.scratch) {
		if n, err := unix.Read(w.read, w.scratch[:]); n < len(w.scratch) || err != nil {
			return
		}
	}
}

func (w *wakePipe) close() error { return errors.Join(unix.Close(w.read), unix.Close(w.write)) }

// openWakePipe opens the wake pipe of another process, and returns the descriptor to write to.
func openWakePipe(pid, fd int) (int, error) {
	path := fmt.Sprintf("/proc/%d/fd/%d", pid, fd)
	info, err := os.Stat(path)
	if err != nil {
		return -1, fmt.Errorf("open the wake pipe of process %d: %w", pid, err)
	}
	if info.Mode()&os.ModeNamedPipe == 0 {
		return -1, fmt.Errorf("open the wake pipe of process %d: %s is not a pipe", pid, path)
	}
	opened, err := unix.Open(path, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open the wake pipe of process %d: %w", pid, err)
	}
	return opened, nil
}
