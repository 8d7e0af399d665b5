package watch

import "golang.org/x/sys/unix"

// olderCalls are calls that newer processor architectures do not have.
var olderCalls = map[int]string{
	unix.SYS_VFORK: "vfork", unix.SYS_POLL: "poll", unix.SYS_SELECT: "select", unix.SYS_EPOLL_WAIT: "epoll_wait", unix.SYS_PAUSE: "pause",
	unix.SYS_OPEN: "open", unix.SYS_STAT: "stat", unix.SYS_LSTAT: "lstat", unix.SYS_ACCEPT: "accept",
}
