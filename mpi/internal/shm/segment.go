package shm

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrElsewhere means that a segment cannot be reached: its process is on another machine, in another namespace, of another user, or gone.
// Other ways of exchanging data may work.
var ErrElsewhere = errors.New("shared memory is not reachable from here")

// name is the name of a segment in /proc/PID/fd and /proc/PID/maps.
const name = "ddpbatch"

// Segment is memory that several processes have mapped. Its first page holds the token and the address at which its maker has mapped it;
// the data begins at the second page. A Segment is for one goroutine at a time, but several may use its data.
type Segment struct {
	handle Handle
	fd     int    // -1 if another process made the segment
	mem    []byte // the whole mapping; nil after Close
}

// Create makes a segment with size bytes of data, all zero. Pages that are never used do not take memory.
func Create(size int) (*Segment, error) {
	if size <= 0 || size > maxSegment {
		return nil, fmt.Errorf("create a shared segment: the size must be from 1 to %d bytes, got %d", int64(maxSegment), size)
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

// prepare fixes the length of a new segment: if it shrank, a process that used it would be killed by SIGBUS.
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
	s.noteAddress()
	return nil
}

// attach maps the file of the segment.
func (s *Segment) attach(fd int) error {
	mem, err := unix.Mmap(fd, 0, int(length(s.handle.Size)), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	s.mem = mem
	if len(mem) >= hugeFrom {
		// A hint, which has an effect only if transparent_hugepage/shmem_enabled is "advise". That is not the default.
		_ = unix.Madvise(mem, unix.MADV_HUGEPAGE)
	}
	return nil
}

// hugeFrom is the length in bytes from which attach asks for large pages: that of one such page.
const hugeFrom = 2 << 20

// length returns the length of the file for size bytes of data.
func length(size int) int64 {
	page := os.Getpagesize()
	return int64(page + (size+page-1)/page*page)
}

// Open maps a segment that another process, or this one, has made. The error matches ErrElsewhere unless the segment was found but cannot
// be mapped.
//
// Open goes through /proc/PID/fd, see proc(5). The kernel allows that to processes that may trace the process (ptrace(2),
// PTRACE_MODE_READ_FSCREDS), which are normally those of the same user.
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
		return nil, fmt.Errorf("open shared segment %d of process %d: %w: a different segment has this number", h.FD, h.PID, ErrElsewhere)
	}
	return s, nil
}

// find opens the file of a handle, if it can be the handle's segment. The handle may come from another machine, and stand for any file
// here. find does not open a file that is not a segment, because opening alone has effects on some devices.
func find(h Handle) (int, error) {
	if h.Size <= 0 || h.Size > maxSegment {
		return -1, fmt.Errorf("the handle's size is %d bytes", h.Size)
	}
	path := fmt.Sprintf("/proc/%d/fd/%d", h.PID, h.FD)
	target, err := os.Readlink(path)
	if err != nil {
		return -1, err
	}
	if !strings.HasPrefix(target, "/memfd:"+name) {
		return -1, fmt.Errorf("%s is not a shared segment", path)
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

// inspect checks that an open file has the segment's length, and cannot shrink.
func inspect(fd int, h Handle) error {
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return err
	}
	if stat.Size != length(h.Size) {
		return fmt.Errorf("it has %d bytes, want %d", stat.Size, length(h.Size))
	}
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return err
	}
	if seals&unix.F_SEAL_SHRINK == 0 {
		return fmt.Errorf("it is not sealed against shrinking")
	}
	return nil
}

// Handle returns the handle with which other processes open the segment.
func (s *Segment) Handle() Handle { return s.handle }

// Bytes returns the data, which begins at a page, or nil after Close. The data must not be used after Close.
func (s *Segment) Bytes() []byte {
	if s.mem == nil {
		return nil
	}
	page := os.Getpagesize()
	return s.mem[page : page+s.handle.Size : page+s.handle.Size]
}

// CloseFile closes the file, so that other processes cannot open the segment any more. Mappings stay.
func (s *Segment) CloseFile() error {
	if s.fd < 0 {
		return nil
	}
	err := unix.Close(s.fd)
	s.fd = -1
	return err
}

// Close unmaps the segment in this process. Other processes keep their mappings. A second call does nothing.
func (s *Segment) Close() error {
	var errs []error
	if s.mem != nil {
		errs = append(errs, unix.Munmap(s.mem))
		s.mem = nil
	}
	return errors.Join(append(errs, s.CloseFile())...)
}

const (
	// HandleSize is the length of an encoded handle, in bytes.
	HandleSize = 4 + 4 + 8 + tokenSize

	tokenSize = 16

	// maxSegment is the largest size of a segment: 16 TiB, an eighth of what x86-64 and arm64 can address.
	maxSegment = 1 << 44
)

// Handle says where another process finds a segment. It is valid as long as the process that made the segment has it open.
type Handle struct {
	PID   int             // the process that made it
	FD    int             // the segment's file descriptor in that process
	Size  int             // bytes of data
	Token [tokenSize]byte // random; also stored in the segment
}

// Encode returns the handle in HandleSize bytes, little endian.
func (h Handle) Encode() [HandleSize]byte {
	var b [HandleSize]byte
	binary.LittleEndian.PutUint32(b[0:], uint32(h.PID))
	binary.LittleEndian.PutUint32(b[4:], uint32(h.FD))
	binary.LittleEndian.PutUint64(b[8:], uint64(h.Size))
	copy(b[16:], h.Token[:])
	return b
}

// DecodeHandle is the inverse of Encode. It returns an error for values that no segment has.
func DecodeHandle(b []byte) (Handle, error) {
	if len(b) != HandleSize {
		return Handle{}, fmt.Errorf("a segment's handle has %d bytes, want %d", len(b), HandleSize)
	}
	pid, fd, size := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:]), binary.LittleEndian.Uint64(b[8:])
	if pid == 0 || pid > math.MaxInt32 || fd > math.MaxInt32 || size == 0 || size > maxSegment {
		return Handle{}, fmt.Errorf("invalid handle of a segment: process %d, file %d, %d bytes", pid, fd, size)
	}
	return Handle{PID: int(pid), FD: int(fd), Size: int(size), Token: [tokenSize]byte(b[16:])}, nil
}
