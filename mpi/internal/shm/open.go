package shm

import (
	"crypto/subtle"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Open maps a segment that another process made, or this one. The error matches
// ErrElsewhere unless the segment was found and cannot be mapped.
//
// It goes by way of /proc/PID/fd, see proc(5), which the kernel opens to whoever may trace the
// process (ptrace(2), PTRACE_MODE_READ_FSCREDS): the same user's, as a rule.
func Open(h Handle) (*Segment, error) {
	fd, err := find(h)
	if err != nil {
		return nil, fmt.Errorf("open shared segment %d of process %d: %w: %w", h.FD, h.PID, ErrElsewhere, err)
	}
	defer unix.Close(fd)
	s := &Segment{fd: -1, handle: h}
	if err := s.attach(fd); err != nil {
		return nil, fmt.Errorf("open shared segment %d of process %d: %w", h.FD, h.PID, err)
	}
	if subtle.ConstantTimeCompare(s.mem[:tokenSize], h.Token[:]) == 0 {
		s.Close()
		return nil, fmt.Errorf("open shared segment %d of process %d: %w: it is another one", h.FD, h.PID, ErrElsewhere)
	}
	return s, nil
}

// find opens the file of a handle, if it may be its segment. The handle may be another machine's, and stand for
// anything here: what is not a segment is not opened, as that alone has effects on some devices.
func find(h Handle) (int, error) {
	if h.Size <= 0 || h.Size > maxSegment {
		return -1, fmt.Errorf("%d bytes", h.Size)
	}
	path := fmt.Sprintf("/proc/%d/fd/%d", h.PID, h.FD)
	target, err := os.Readlink(path)
	if err != nil {
		return -1, err
	}
	if !strings.HasPrefix(target, "/memfd:"+name) {
		return -1, fmt.Errorf("%s is no segment", path)
	}
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return -1, err
	}
	if err := inspect(fd, h); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// inspect checks that an open file has the segment's length and keeps it.
func inspect(fd int, h Handle) error {
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return err
	}
	if stat.Size != length(h.Size) {
		return fmt.Errorf("it has %d bytes, not %d", stat.Size, length(h.Size))
	}
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return err
	}
	if seals&unix.F_SEAL_SHRINK == 0 {
		return fmt.Errorf("it is not sealed")
	}
	return nil
}
