package shm

import (
	"bytes"
	"errors"
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

func create(t testing.TB, size int) *Segment {
	t.Helper()
	s, err := Create(size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// openFiles counts the file descriptors of this process.
func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestSegmentIsShared(t *testing.T) {
	for _, size := range []int{1, os.Getpagesize(), os.Getpagesize() + 1, 3 << 20} {
		before := openFiles(t)
		made := create(t, size)
		opened, err := Open(made.Handle())
		if err != nil {
			t.Fatal(err)
		}
		a, b := made.Bytes(), opened.Bytes()
		if len(a) != size || len(b) != size || &a[0] == &b[0] {
			t.Fatalf("%d and %d bytes, want %d twice, at two addresses", len(a), len(b), size)
		}
		if at := uintptr(unsafe.Pointer(&a[0])); at%uintptr(os.Getpagesize()) != 0 {
			t.Errorf("data at %x", at)
		}
		a[size-1] = 7
		if b[size-1] != 7 {
			t.Error("what one side writes the other does not see")
		}
		if err := made.Close(); err != nil {
			t.Error(err)
		}
		if b[0]++; made.Bytes() != nil {
			t.Error("a closed segment has data")
		}
		if err := errors.Join(opened.Close(), opened.Close(), made.Close()); err != nil {
			t.Error(err)
		}
		if after := openFiles(t); after != before {
			t.Errorf("%d open files became %d", before, after)
		}
	}
}

// A segment's length cannot change, which would kill the processes that touch the memory. Its file is not inherited, because it would then
// outlive its process.
func TestSegmentIsSealed(t *testing.T) {
	s := create(t, 1<<20)
	for _, size := range []int64{0, 1 << 30} {
		if err := unix.Ftruncate(s.fd, size); !errors.Is(err, unix.EPERM) {
			t.Errorf("change of length to %d: %v", size, err)
		}
	}
	if flags, err := unix.FcntlInt(uintptr(s.fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("flags %x, %v", flags, err)
	}
}

func TestSegmentIsSparse(t *testing.T) {
	s := create(t, 1<<40)
	s.Bytes()[1<<39] = 1
	var stat unix.Stat_t
	if err := unix.Fstat(s.fd, &stat); err != nil {
		t.Fatal(err)
	}
	if used := stat.Blocks * 512; used > 2*hugeFrom {
		t.Errorf("%d bytes in use", used)
	}
}

func TestCreateRefuses(t *testing.T) {
	for _, size := range []int{-1, 0, maxSegment + 1} {
		if s, err := Create(size); err == nil {
			s.Close()
			t.Errorf("a segment of %d bytes", size)
		}
	}
}

func TestOpenRefusesHandlesOfElsewhere(t *testing.T) {
	s := create(t, 100)
	h := s.Handle()
	closed := create(t, 100)
	gone := closed.Handle()
	closed.Close()
	file, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	unsealed, another := memfd(t, name, 0), memfd(t, "another", unix.F_SEAL_SHRINK)
	for what, h := range map[string]Handle{
		"closed":        gone,
		"no_process":    {PID: 1 << 30, FD: h.FD, Size: h.Size, Token: h.Token},
		"no_file":       {PID: h.PID, FD: 1 << 20, Size: h.Size, Token: h.Token},
		"another_token": {PID: h.PID, FD: h.FD, Size: h.Size},
		"another_size":  {PID: h.PID, FD: h.FD, Size: h.Size + os.Getpagesize(), Token: h.Token},
		"negative_size": {PID: h.PID, FD: h.FD, Size: -h.Size, Token: h.Token},
		"no_segment":    {PID: h.PID, FD: int(file.Fd()), Size: h.Size, Token: h.Token},
		"not_sealed":    {PID: h.PID, FD: unsealed, Size: 100},
		"another_name":  {PID: h.PID, FD: another, Size: 100},
	} {
		t.Run(what, func(t *testing.T) {
			before := openFiles(t)
			if s, err := Open(h); !errors.Is(err, ErrElsewhere) {
				t.Errorf("got %v, %v", s, err)
			}
			if after := openFiles(t); after != before {
				t.Errorf("%d open files became %d", before, after)
			}
		})
	}
}

// memfd creates a file like that of a segment with 100 bytes and a token of zeros, with the given name and seals.
func memfd(t *testing.T, name string, seals int) int {
	t.Helper()
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Ftruncate(fd, length(100)); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		t.Fatal(err)
	}
	return fd
}

func TestHandleRoundTrip(t *testing.T) {
	want := Handle{PID: 4194304, FD: 7, Size: 1 << 40, Token: [tokenSize]byte{1, 15: 2}}
	encoded := want.Encode()
	if got, err := DecodeHandle(encoded[:]); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}

func FuzzDecodeHandle(f *testing.F) {
	for _, h := range []Handle{{}, {PID: 1, Size: 1}, {PID: 1 << 31, Size: 1}, {PID: 1, FD: 1 << 31, Size: 1}, {PID: 1, FD: 3, Size: -1}} {
		b := h.Encode()
		f.Add(b[:])
	}
	f.Add(make([]byte, HandleSize+1))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := DecodeHandle(b)
		if err != nil {
			return
		}
		if h.PID <= 0 || h.FD < 0 || h.Size <= 0 || h.Size > maxSegment {
			t.Errorf("accepted %+v", h)
		}
		if again := h.Encode(); !bytes.Equal(again[:], b) {
			t.Errorf("%x became %x", b, again)
		}
	})
}
