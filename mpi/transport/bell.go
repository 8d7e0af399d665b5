package transport

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

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
