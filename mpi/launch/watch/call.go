package watch

import (
	"bytes"
	"cmp"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"ddpbatch/internal/pause"
	"ddpbatch/internal/text"

	"golang.org/x/sys/unix"
)

// callNames are the system calls in which a process may wait for long. Their numbers depend on the processor.
var callNames = map[int]string{
	unix.SYS_FUTEX: "futex", unix.SYS_NANOSLEEP: "nanosleep", unix.SYS_CLOCK_NANOSLEEP: "clock_nanosleep",
	unix.SYS_READ: "read", unix.SYS_READV: "readv", unix.SYS_PREAD64: "pread64", unix.SYS_WRITE: "write",
	unix.SYS_WRITEV: "writev", unix.SYS_PWRITE64: "pwrite64",
	unix.SYS_OPENAT: "openat", unix.SYS_CLOSE: "close", unix.SYS_FSYNC: "fsync", unix.SYS_FDATASYNC: "fdatasync",
	unix.SYS_GETDENTS64: "getdents64",
	unix.SYS_FLOCK:      "flock", unix.SYS_FCNTL: "fcntl", unix.SYS_IOCTL: "ioctl", unix.SYS_MMAP: "mmap", unix.SYS_MUNMAP: "munmap",
	unix.SYS_EPOLL_PWAIT: "epoll_pwait", unix.SYS_PPOLL: "ppoll", unix.SYS_PSELECT6: "pselect6", unix.SYS_IO_URING_ENTER: "io_uring_enter",
	unix.SYS_CONNECT: "connect", unix.SYS_ACCEPT4: "accept4", unix.SYS_RECVFROM: "recvfrom", unix.SYS_RECVMSG: "recvmsg",
	unix.SYS_SENDTO: "sendto", unix.SYS_SENDMSG: "sendmsg",
	unix.SYS_WAIT4: "wait4", unix.SYS_WAITID: "waitid", unix.SYS_RT_SIGSUSPEND: "rt_sigsuspend",
	unix.SYS_RT_SIGTIMEDWAIT: "rt_sigtimedwait",
	unix.SYS_NEWFSTATAT:      "newfstatat", unix.SYS_STATX: "statx", unix.SYS_STATFS: "statfs", unix.SYS_FACCESSAT: "faccessat",
	unix.SYS_READLINKAT: "readlinkat", unix.SYS_UNLINKAT: "unlinkat", unix.SYS_MKDIRAT: "mkdirat", unix.SYS_RENAMEAT: "renameat",
	unix.SYS_RENAMEAT2: "renameat2", unix.SYS_FSTAT: "fstat",
	unix.SYS_FTRUNCATE: "ftruncate", unix.SYS_FALLOCATE: "fallocate", unix.SYS_MSYNC: "msync", unix.SYS_SENDFILE: "sendfile",
	unix.SYS_CLONE: "clone", unix.SYS_CLONE3: "clone3", unix.SYS_EXECVE: "execve", unix.SYS_EXIT_GROUP: "exit_group",
}

// descriptorCalls are calls whose first argument is the descriptor of a file. pathCalls are calls with a path; the number is that
// of the argument that points to it.
var (
	descriptorCalls = map[string]bool{
		"read": true, "readv": true, "pread64": true, "write": true, "writev": true, "pwrite64": true, "close": true,
		"fsync": true, "fdatasync": true, "getdents64": true, "flock": true, "fcntl": true, "ioctl": true, "fstat": true,
		"ftruncate": true, "fallocate": true,
	}
	pathCalls = map[string]int{
		"open": 0, "stat": 0, "lstat": 0, "statfs": 0, "execve": 0,
		"openat": 1, "newfstatat": 1, "statx": 1, "faccessat": 1, "readlinkat": 1, "unlinkat": 1, "mkdirat": 1,
		"renameat": 1, "renameat2": 1,
	}
)

// parseCall parses /proc/PID/syscall: the number of a system call, its six arguments, and two addresses (proc(5)). "": no call.
func parseCall(line string) (name, arguments string) {
	fields := strings.Fields(line)
	if len(fields) != 9 {
		return "", "" // "running", or blocked outside a system call
	}
	number, err := strconv.Atoi(fields[0])
	if err != nil || number < 0 {
		return "", ""
	}
	return cmp.Or(callNames[number], olderCalls[number], "system call "+fields[0]), strings.Join(fields[1:4], ", ")
}

// fileOf returns the file that a thread's system call uses; "": none, or not known. dir is the thread's folder in /proc.
func fileOf(dir, call, arguments string) string {
	values := strings.Split(arguments, ", ")
	at, path := pathCalls[call]
	if !path && !descriptorCalls[call] || at >= len(values) {
		return ""
	}
	value, err := strconv.ParseUint(values[at], 0, 64)
	if err != nil {
		return ""
	}
	name := ""
	if path {
		name = readPath(dir+"mem", int64(value))
	} else {
		name, _ = os.Readlink(dir + "fd/" + strconv.FormatUint(value, 10)) // "": the descriptor is closed, or cannot be read
	}
	if !strings.HasPrefix(name, "/") && !path {
		return "" // a socket, or a pipe without a name
	}
	return shortPath(name)
}

// shortPath shortens a path for a message, and removes what would control a terminal.
func shortPath(path string) string {
	const most = 200 // bytes
	if len(path) > most {
		path = "..." + path[len(path)-most:]
	}
	return text.Clean(strings.ToValidUTF8(path, "?"))
}

// memoryWait is how long reading a process's memory may take.
const memoryWait = 100 * time.Millisecond

// readPath reads a path in a process's memory; "": it cannot be read. A thread that waits for a page of a file may keep others from
// the memory for as long. In that case a goroutine is left behind.
func readPath(memory string, at int64) string {
	got := make(chan string, 1)
	go func() {
		f, err := os.Open(memory)
		if err != nil {
			got <- ""
			return
		}
		defer f.Close()
		// the bytes before an error, such as the end of a mapping, may contain the whole path
		path, err := io.ReadAll(io.NewSectionReader(f, at, unix.PathMax))
		path, _, whole := bytes.Cut(path, []byte{0})
		if err != nil && !whole {
			path = nil
		}
		got <- string(path)
	}()
	path, _ := pause.Await(got, memoryWait)
	return path
}
