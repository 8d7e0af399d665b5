package shm

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// name is what the kernel shows for a segment, in /proc/PID/fd and maps.
const name = "ddpbatch"

// hugeFrom is the length in bytes from which large pages are asked for: that of one.
const hugeFrom = 2 << 20

// Segment is memory that several processes have mapped. Its first page holds the
// token; the data begins at the next one. It is not for several goroutines at
// once, but what it holds may be.
type Segment struct {
	handle Handle
	fd     int    // -1 where this process opened another's
	mem    []byte // the whole mapping; nil once closed
}

// Create makes a segment with size bytes of data, all zero. Pages that nobody
// touches cost nothing.
func Create(size int) (*Segment, error) {
	if size <= 0 || size > maxSegment {
		return nil, fmt.Errorf("create a shared segment: %d bytes", size)
	}
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3
		fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return nil, fmt.Errorf("create a shared segment: %w", err)
	}
	s := &Segment{fd: fd, handle: Handle{PID: os.Getpid(), FD: fd, Size: size}}
	rand.Read(s.handle.Token[:])
	if err := s.prepare(); err != nil {
		s.Close()
		return nil, fmt.Errorf("create a shared segment of %d bytes: %w", size, err)
	}
	return s, nil
}

// prepare gives a new segment its length for good: one that shrank would kill who touches it with SIGBUS.
func (s *Segment) prepare() error {
	if err := unix.Ftruncate(s.fd, length(s.handle.Size)); err != nil {
		return err
	}
	if _, err := unix.FcntlInt(uintptr(s.fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL); err != nil {
		return err
	}
	if err := s.attach(s.fd); err != nil {
		return err
	}
	copy(s.mem, s.handle.Token[:])
	return nil
}

// attach maps the file.
func (s *Segment) attach(fd int) error {
	mem, err := unix.Mmap(fd, 0, int(length(s.handle.Size)), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	s.mem = mem
	if len(mem) >= hugeFrom {
		// A wish, granted where transparent_hugepage/shmem_enabled is "advise": without it, as by default, nothing changes.
		_ = unix.Madvise(mem, unix.MADV_HUGEPAGE)
	}
	return nil
}

// length is that of the file with size bytes of data.
func length(size int) int64 {
	page := os.Getpagesize()
	return int64(page + (size+page-1)/page*page)
}

// Handle is what other processes open the segment with.
func (s *Segment) Handle() Handle { return s.handle }

// Bytes is the data, at the start of a page; nil once the segment is closed. It must not be touched after Close.
func (s *Segment) Bytes() []byte {
	if s.mem == nil {
		return nil
	}
	page := os.Getpagesize()
	return s.mem[page : page+s.handle.Size : page+s.handle.Size]
}

// Shut lets go of the file, so that nobody else can open the segment any more. Mappings stay.
func (s *Segment) Shut() error {
	if s.fd < 0 {
		return nil
	}
	err := unix.Close(s.fd)
	s.fd = -1
	return err
}

// Close takes the segment out of this process. Others keep what they have opened. A second call does nothing.
func (s *Segment) Close() error {
	var errs []error
	if s.mem != nil {
		errs = append(errs, unix.Munmap(s.mem))
		s.mem = nil
	}
	return errors.Join(append(errs, s.Shut())...)
}
