package transport

import (
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"
)

// errEnd says that a system call moved nothing although it could have.
var errEnd = errors.New("end of stream")

// call reads or writes without waiting. Nothing to move is no error.
func call(number uintptr, fd int, memory unsafe.Pointer, size int, long bool) (int, error) {
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

// epollNow is epoll_wait(2) that does not wait.
func epollNow(fd int, events []unix.EpollEvent) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(fd),
		uintptr(unsafe.Pointer(unsafe.SliceData(events))), uintptr(len(events)), 0, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}
